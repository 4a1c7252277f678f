# `cmake --install build` and what find_package(changeover) reads afterwards.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/changeover)

install(TARGETS changeover EXPORT changeoverTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT changeoverTargets NAMESPACE changeover:: DESTINATION ${package_dir})

configure_package_config_file(cmake/changeoverConfig.cmake.in
  ${PROJECT_BINARY_DIR}/changeoverConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/changeoverConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/changeoverConfig.cmake
              ${PROJECT_BINARY_DIR}/changeoverConfigVersion.cmake
  DESTINATION ${package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

if(TARGET changeover_cli)
  install(TARGETS changeover_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
