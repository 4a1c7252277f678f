# Thin: each target is one line over a CMake preset or a tool. `make test` and `make demo` need
# nothing to be installed first; tools/setup.sh sees to it.
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60

.PHONY: all setup build cli test demo bench format check-rules asan tsan fuzz clean
all: build

setup:
	@tools/setup.sh

build: setup
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS)

test: build
	@ctest --preset release -j $(JOBS)

cli: setup
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS) --target changeover_cli

demo: cli
	@tools/demo.sh $(DEMO)

bench: cli
	@build/bin/changeover bench $(BENCH)

format: setup
	@git ls-files '*.h' '*.cc' | xargs clang-format-14 -i

check-rules:
	@python3 tools/check_rules.py

asan tsan: setup
	@cmake --preset $@ && cmake --build --preset $@ -j $(JOBS) && ctest --preset $@ -j $(JOBS)

fuzz:
	@tools/setup.sh --fuzz
	@tools/fuzz.sh $(FUZZ_SECONDS)

clean:
	@cmake -E rm -rf build
