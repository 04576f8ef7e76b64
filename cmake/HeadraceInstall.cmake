# headrace_install(<layer>...)
# What `cmake --install` gives beside the program: static libraries, headers under include/headrace with the
# paths that sources write, and a package, so that find_package(headrace) finds headrace::base to
# headrace::session. Component `engine`.
include(CMakePackageConfigHelpers)

function(headrace_install)
  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/headrace)
  list(TRANSFORM ARGN PREPEND headrace_ OUTPUT_VARIABLE targets)
  install(TARGETS ${targets} EXPORT headraceTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
                                                            COMPONENT engine)
  install(EXPORT headraceTargets NAMESPACE headrace:: DESTINATION ${package} COMPONENT engine)
  # Left out: what needs a library that its users would not.
  set(private_headers PATTERN json_input.h EXCLUDE)
  if(NOT HEADRACE_CUDA)
    list(APPEND private_headers PATTERN cuda EXCLUDE)
  endif()
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/engine/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/headrace
          COMPONENT engine FILES_MATCHING PATTERN *.h ${private_headers})
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/headraceConfig.cmake.in
                                ${PROJECT_BINARY_DIR}/headraceConfig.cmake
                                INSTALL_DESTINATION ${package})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/headraceConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/headraceConfig.cmake
                ${PROJECT_BINARY_DIR}/headraceConfigVersion.cmake
          DESTINATION ${package} COMPONENT engine)
endfunction()
