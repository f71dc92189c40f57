# SPDX-License-Identifier: Apache-2.0
# Each target does all set-up that it needs, from a machine with git and make; what they do is in scripts/.
.PHONY: setup build demo test test-long bench bench-compare

setup:
	@scripts/setup.sh
build:
	@scripts/build.sh release
demo: build
	@scripts/demo.sh
test:
	@scripts/run_tests.sh release
test-long:
	@scripts/run_tests.sh release --long
bench: build
	@scripts/bench.sh
bench-compare: build
	@scripts/bench.sh --compare
