# changeover_module(wire SRCS a.cc TESTS a_test.cc FUZZ a_fuzz.cc LIBS Threads::Threads)
#
# One folder of src/: its sources go into the library; its tests into one binary, `wire_test`;
# each fuzz target is a libFuzzer binary in the fuzz preset, and elsewhere a replay of its corpus
# (tests/corpus/<target>/) that runs as a test.
function(changeover_module name)
  cmake_parse_arguments(ARG "" "" "SRCS;TESTS;FUZZ;LIBS;TEST_LIBS" ${ARGN})
  list(TRANSFORM ARG_SRCS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  target_sources(changeover PRIVATE ${ARG_SRCS})
  if(ARG_LIBS)
    target_link_libraries(changeover PRIVATE ${ARG_LIBS})
  endif()
  if(NOT CHANGEOVER_DEVELOPER_MODE)
    return()
  endif()
  if(ARG_TESTS)
    changeover_test(${name}_test SRCS ${ARG_TESTS} LIBS ${ARG_TEST_LIBS})
  endif()
  foreach(source IN LISTS ARG_FUZZ)
    get_filename_component(stem ${source} NAME_WE)
    if(CHANGEOVER_FUZZ)
      add_executable(${stem} ${source})
      target_link_options(${stem} PRIVATE -fsanitize=fuzzer)
    else()
      add_executable(${stem} ${source} ${PROJECT_SOURCE_DIR}/tests/fuzz_replay.cc)
      add_test(NAME ${name}.${stem}_corpus
               COMMAND ${stem} ${PROJECT_SOURCE_DIR}/tests/corpus/${stem})
    endif()
    target_include_directories(${stem} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${stem} PRIVATE changeover ${ARG_TEST_LIBS})
    target_compile_options(${stem} PRIVATE ${CHANGEOVER_WARNINGS})
  endforeach()
endfunction()

# CHANGEOVER_TEST_FLAGS come after the preset's own: test code is compiled once and run for
# seconds, so optimising it costs more than it saves.
#
# changeover_test(name SRCS ... LIBS ... [LABELS ...]): one GoogleTest binary; ctest sees each test.
function(changeover_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SRCS;LIBS;LABELS" ${ARGN})
  if(CHANGEOVER_FUZZ)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SRCS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE changeover ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  separate_arguments(test_flags UNIX_COMMAND "${CHANGEOVER_TEST_FLAGS}")
  target_compile_options(${name} PRIVATE ${CHANGEOVER_WARNINGS} ${test_flags})
  target_compile_definitions(${name} PRIVATE
    CHANGEOVER_SOURCE_DIR="${PROJECT_SOURCE_DIR}" CHANGEOVER_BINARY_DIR="${PROJECT_BINARY_DIR}")
  gtest_discover_tests(${name} TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
    PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
