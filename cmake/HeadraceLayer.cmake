# headrace_layer(<name> [<lower layer>...])
# One static library a layer, `headrace_<name>`, from every source below engine/<name>. It links only
# the layers named, so an upward call does not link; scripts/check_layers.py rejects an upward include.
function(headrace_layer name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/engine/${name}/*.cc)
  set(target headrace_${name})
  add_library(${target} STATIC ${sources})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/engine)
  target_link_libraries(${target} PUBLIC ${HEADRACE_FMT} Threads::Threads)
  foreach(lower IN LISTS ARGN)
    target_link_libraries(${target} PUBLIC headrace_${lower})
  endforeach()
endfunction()
