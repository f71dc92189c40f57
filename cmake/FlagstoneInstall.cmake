# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where, and how find_package(flagstone) finds it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# flagstone_install()
# Called after lib/ and tools/ have made their targets. lib/torch adds its own library to the export set.
function(flagstone_install)
  set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/flagstone")
  install(TARGETS flagstone EXPORT flagstoneTargets
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
    FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  if(TARGET flagstone_cli)
    install(TARGETS flagstone_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
  install(EXPORT flagstoneTargets NAMESPACE flagstone:: DESTINATION "${package_folder}")

  # A static library leaves liburing to whoever links it; a shared one has it inside its own list.
  set(FLAGSTONE_CONSUMER_NEEDS_LIBURING OFF)
  if(FLAGSTONE_HAVE_URING AND NOT BUILD_SHARED_LIBS)
    set(FLAGSTONE_CONSUMER_NEEDS_LIBURING ON)
  endif()
  configure_package_config_file(
    "${PROJECT_SOURCE_DIR}/cmake/flagstoneConfig.cmake.in" "${PROJECT_BINARY_DIR}/flagstoneConfig.cmake"
    INSTALL_DESTINATION "${package_folder}"
    NO_SET_AND_CHECK_MACRO)
  # 0.x makes no promise from one minor version to the next.
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/flagstoneConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/flagstoneConfig.cmake" "${PROJECT_BINARY_DIR}/flagstoneConfigVersion.cmake"
    DESTINATION "${package_folder}")
endfunction()
