# One test program a folder, `<folder>_gpu_test`, from every source below tests/<folder>/cuda.
# They are compiled wherever CUDA is, so that what does not compile is seen without a GPU, and known to
# ctest (label gpu) only where there was a GPU when this was configured; elsewhere those alone that need
# none. scripts/gpu.sh runs them in order.
set(host_tests "DeviceCopies.*:DeviceChecks.*:StreamMonitorTest.*")
set(layers_with_host_tests runtime transport)
find_path(HEADRACE_CUPTI_INCLUDE cupti.h
          HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_TARGET_DIR}/extras/CUPTI/include
          PATHS ${HEADRACE_CUDA_PACKAGES} PATH_SUFFIXES include)
find_library(HEADRACE_CUPTI_LIBRARY NAMES cupti libcupti.so.${CUDAToolkit_VERSION_MAJOR}
             HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_TARGET_DIR}/extras/CUPTI/lib64
             PATHS ${HEADRACE_CUDA_PACKAGES} PATH_SUFFIXES lib)

file(GLOB gpu_support_sources CONFIGURE_DEPENDS support/cuda/*.cc support/cuda/*.cu)
list(FILTER gpu_support_sources EXCLUDE REGEX "_test\\.cc$|_test\\.cu$")
add_library(headrace_gpu_test_support STATIC ${gpu_support_sources})
target_link_libraries(headrace_gpu_test_support PUBLIC headrace_test_support)
if(HEADRACE_CUPTI_INCLUDE AND HEADRACE_CUPTI_LIBRARY)
  target_compile_definitions(headrace_gpu_test_support PRIVATE HEADRACE_CUPTI=1)
  target_include_directories(headrace_gpu_test_support SYSTEM PRIVATE ${HEADRACE_CUPTI_INCLUDE})
  target_link_libraries(headrace_gpu_test_support PRIVATE ${HEADRACE_CUPTI_LIBRARY})
else()
  message(STATUS "Headrace without CUPTI: tests of what the GPU was given will fail")
endif()

execute_process(COMMAND nvidia-smi -L OUTPUT_VARIABLE gpus ERROR_QUIET RESULT_VARIABLE status)
string(COMPARE EQUAL "${status}" "0" has_gpu)
if(NOT gpus MATCHES "GPU 0")
  set(has_gpu OFF)
endif()

file(GLOB folders CONFIGURE_DEPENDS LIST_DIRECTORIES ON RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} */cuda)
foreach(folder IN LISTS folders)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cc ${folder}/*.cu)
  list(REMOVE_ITEM sources ${gpu_support_sources})
  if(sources)
    get_filename_component(layer ${folder} DIRECTORY)
    set(program ${layer}_gpu_test)
    add_executable(${program} ${sources})
    target_link_libraries(${program} PRIVATE headrace_gpu_test_support)
    add_dependencies(gpu ${program})
    if(has_gpu)
      gtest_discover_tests(${program} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 TEST_PREFIX gpu.
                           PROPERTIES TIMEOUT 120 LABELS gpu RUN_SERIAL ON)
    elseif(layer IN_LIST layers_with_host_tests)
      gtest_discover_tests(${program} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 TEST_PREFIX gpu.
                           TEST_FILTER "${host_tests}" PROPERTIES TIMEOUT 300)
    endif()
  endif()
endforeach()
