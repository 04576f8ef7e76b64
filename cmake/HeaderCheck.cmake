# headrace_header_check()
# Compiles every header of the engine alone, so that each includes what it uses. One generated source a
# header, nothing is linked.
function(headrace_header_check)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/engine
       ${PROJECT_SOURCE_DIR}/engine/*.h)
  if(NOT HEADRACE_CUDA)
    list(FILTER headers EXCLUDE REGEX "/cuda/")
  endif()
  set(sources)
  foreach(header IN LISTS headers)
    set(source ${PROJECT_BINARY_DIR}/header_check/${header}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n" @ONLY)
    list(APPEND sources ${source})
  endforeach()
  add_library(headrace_header_check OBJECT ${sources})
  target_link_libraries(headrace_header_check PRIVATE headrace_session headrace_balance
                                                      nlohmann_json::nlohmann_json)
  target_compile_options(headrace_header_check PRIVATE -O0)
endfunction()
