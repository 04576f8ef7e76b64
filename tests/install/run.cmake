# cmake -DBUILD=<build tree> -DVERSION=<x.y.z> -DCOMPILER=<C++> [-DDEPENDENCIES=<prefixes>] -P run.cmake
cmake_minimum_required(VERSION 3.25)
set(ours ${BUILD}/install_test)
file(REMOVE_RECURSE ${ours})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${output}\nended with ${status}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${ours}/prefix --component engine)
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${ours}/build -G Ninja
    -DCMAKE_CXX_COMPILER=${COMPILER} -DHEADRACE_WANTED=${VERSION}
    "-DCMAKE_PREFIX_PATH=${ours}/prefix;${DEPENDENCIES}")
run(${CMAKE_COMMAND} --build ${ours}/build)
run(${ours}/build/consumer)
