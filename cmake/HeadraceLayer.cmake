# headrace_layer(<name> [<lower layer>...])
# Sources in a folder named `cuda` only with HEADRACE_CUDA.
# One static library a layer, `headrace_<name>`, from every source below engine/<name>. It links only
# the layers named, so an upward call does not link; scripts/check_layers.py rejects an upward include.
function(headrace_layer name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/engine/${name}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/cuda/")
  if(HEADRACE_CUDA)
    file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/engine/${name}/cuda/*.cc
         ${PROJECT_SOURCE_DIR}/engine/${name}/cuda/*.cu)
    list(APPEND sources ${cuda_sources})
  endif()
  set(target headrace_${name})
  add_library(${target} STATIC ${sources})
  add_library(headrace::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/engine>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/headrace>)
  target_link_libraries(${target} PUBLIC ${HEADRACE_FMT} Threads::Threads)
  if(HEADRACE_CUDA)
    target_link_libraries(${target} PUBLIC CUDA::cudart_static)
    target_compile_definitions(${target} PUBLIC HEADRACE_CUDA=1)
  endif()
  foreach(lower IN LISTS ARGN)
    target_link_libraries(${target} PUBLIC headrace_${lower})
  endforeach()
endfunction()
