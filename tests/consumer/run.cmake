# cmake -D BUILD=... -D SOURCE=... -D WORK=... -D FLAGS=... -D COMPILER=... -P run.cmake
# Installs the build into an empty prefix, then configures, builds and runs tests/consumer against
# it; the README's C++ example is part of it. Any step that fails fails the test.
file(REMOVE_RECURSE ${WORK})
function(step)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(READ ${SOURCE}/README.md text)
string(FIND "${text}" "```cpp\n" begin)
if(begin EQUAL -1)
  message(FATAL_ERROR "README.md has no C++ example")
endif()
math(EXPR begin "${begin} + 7")
string(SUBSTRING "${text}" ${begin} -1 text)
string(FIND "${text}" "```\n" end)
string(SUBSTRING "${text}" 0 ${end} text)
file(WRITE ${WORK}/readme_example.cc "${text}")

step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
step(${CMAKE_COMMAND} -S ${SOURCE}/tests/consumer -B ${WORK}/build -G Ninja
     -D CMAKE_PREFIX_PATH=${WORK}/prefix -D CMAKE_CXX_COMPILER=${COMPILER}
     -D CMAKE_CXX_FLAGS=${FLAGS} -D CMAKE_BUILD_TYPE=Debug
     -D README_EXAMPLE=${WORK}/readme_example.cc -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
step(${CMAKE_COMMAND} --build ${WORK}/build)
step(${WORK}/build/consumer)
step(${WORK}/build/readme_example)
