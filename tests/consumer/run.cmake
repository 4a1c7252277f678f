# cmake -D BUILD=... -D SOURCE=... -D WORK=... -D FLAGS=... -P run.cmake
# Installs the build into an empty prefix, then configures, builds and runs tests/consumer against
# it. Any step that fails fails the test.
file(REMOVE_RECURSE ${WORK})
function(step)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()
step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
step(${CMAKE_COMMAND} -S ${SOURCE}/tests/consumer -B ${WORK}/build -G Ninja
     -D CMAKE_PREFIX_PATH=${WORK}/prefix -D CMAKE_CXX_COMPILER=${COMPILER}
     -D CMAKE_CXX_FLAGS=${FLAGS} -D CMAKE_BUILD_TYPE=Debug
     -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
step(${CMAKE_COMMAND} --build ${WORK}/build)
step(${WORK}/build/consumer)
