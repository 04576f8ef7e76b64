# Sets HEADRACE_CUDA to ON or OFF: whether sources in the folders named `cuda` are built.
if(HEADRACE_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER AND NOT HEADRACE_SANITIZE)
    set(HEADRACE_CUDA ON)
  else()
    set(HEADRACE_CUDA OFF)
  endif()
endif()
message(STATUS "Headrace with CUDA: ${HEADRACE_CUDA}")

if(HEADRACE_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES 90)  # machine code for Hopper, and what later GPUs compile at start
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know it of nvcc 12 and newer
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)  # the program also starts where there is no CUDA
  find_package(CUDAToolkit REQUIRED)
  if(CUDAToolkit_VERSION VERSION_LESS 12.8)  # the first whose runtime has all the errors that end a context
    message(FATAL_ERROR "Headrace needs the CUDA toolkit 12.8 or newer, not ${CUDAToolkit_VERSION}: put a newer "
                        "nvcc on the PATH, or build without CUDA by -DHEADRACE_CUDA=OFF")
  endif()
  add_custom_target(gpu)  # every program that needs a GPU to run
endif()
