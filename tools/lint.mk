# SPDX-License-Identifier: Apache-2.0
# tools/lint.mk: compile_commands.json, make lint, make coverage, make check-fresh. Included by the Makefile.
.PHONY: lint lint-quick coverage check-fresh
SETUP_LINT_STAMP := $(S)/setup-lint.done
SETUP_COVERAGE_STAMP := $(S)/setup-coverage.done
# Sources in C that the rule above compiles: not those that other compilers or headers of others' libraries are for.
# FOREIGN_C: of these, what bindings/*/rules.mk names.
COMPILED := $(filter-out $(WITHOUT) $(FOREIGN_C) bench/backend_mpi.c bench/backend_ucc.c bench/plain_gpt.c tests/launch/% tests/gpu/many.c,$(sort \
    $(CORE_SRC) $(PROOF_SRC) $(TRAIN_SRC) $(TEST_SRC) $(MP_SRC) $(FUZZ_SRC) $(SUPPORT_SRC) $(EXAMPLE_SRC) $(LAB_PROGRAMS:$(B)/%=%.c) tests/fuzz/driver.c tests/hosts/rank.c tests/faults/rank.c tests/faults/clock.c \
    $(call sources,tools,c) $(wildcard bench/*.c bindings/*/*.c)))

# A whole Debian in a folder: tools/check-fresh says what it does and which variables it takes.
check-fresh:
	@bash tools/check-fresh '$(SUITE)'

# What clangd asks for. Written anew at each request, since the sources are what the wildcards find.
compile_commands.json: $(SHARE)/flags FORCE
	@$(file >$@,[)$(foreach s,$(COMPILED),$(file >>$@,{"directory": "$(CURDIR)"$(,) "file": "$(s)"$(,) "command": \
	    "$(subst ",\",$(CC) $(call FLAGS_OF,$(s))) -c $(s)"}$(if $(filter $(s),$(lastword $(COMPILED))),,$(,))))$(file >>$@,])
	@echo "  JSON  $@"

# Each file once per change of it, of a header (its object is then newer) or of the rules.
LINTED    := $(filter $(addsuffix /%,$(CORE_MODULES) $(TRAIN_MODULES) tools examples bindings),$(COMPILED))
$(foreach m,base comm model tools,$(if $(filter $(m)/%,$(LINTED)),,$(error tools/lint.mk: make lint would look at no source of $(m)/)))
LINT_HEADERS := $(call sources,$(CORE_MODULES) $(TRAIN_MODULES) tools include,h)
SCRIPTS    = $(sort $(shell git grep -lE '^\#!.*(ba|busybox )?sh$$'; git ls-files '*.sh'))
LINT_CC    = $(filter-out -Werror $(OF_GCC),$(call FLAGS_OF,$(1))) -Wno-everything
lint: lint-quick $(B)/lint/cppcheck $(LINTED:%.c=$(B)/lint/%.tidy)
	@echo "  SHELLCHECK"
	$(Q)shellcheck $(SCRIPTS)
	@echo "$(words $(LINTED) $(SCRIPTS)) passed, 0 failed"
lint-quick: $(B)/lint/tidy
# clang-tidy twice: what it sees in the text of all files at once, in seconds; and, in `make lint` alone, its analyzer, which
# walks the paths through one file at a time.
LINT_PLAIN = $(filter-out -Werror $(OF_GCC),$(CPPFLAGS) -std=c17) -Wno-everything
$(B)/lint/tidy: $(LINTED) $(LINT_HEADERS) .clang-tidy | $(SETUP_LINT_STAMP)
	@mkdir -p $(@D)
	@echo "  TIDY  without analyzer"
	$(Q)printf '%s\n' $(LINTED) | xargs -P "$$(nproc)" -n 16 sh -c 'clang-tidy --quiet "--checks=-clang-analyzer-*" "$$@" -- \
	    $(subst ','\'',$(LINT_PLAIN)) 2>$@.$$$$; failed=$$?; \
	    grep -v " generated[.]" $@.$$$$; rm -f $@.$$$$; exit $$failed' tidy
	@touch $@
$(B)/lint/%.tidy: $(B)/obj/%.o .clang-tidy tools/lint.h | $(SETUP_LINT_STAMP)
	@mkdir -p $(@D)
	@echo "  TIDY  $*.c"
	$(Q)clang-tidy --quiet $*.c -- $(if $(filter base/error,$*),,-include tools/lint.h) $(call LINT_CC,$*.c) >$@.new 2>$@.err || { cat $@.new $@.err; exit 1; }
	$(Q)mv $@.new $@
$(B)/lint/cppcheck: $(LINTED) $(LINT_HEADERS) tools/cppcheck.txt | $(SETUP_LINT_STAMP)
	@mkdir -p $(B)/lint/cppcheck.cache
	@echo "  CPPCHECK"
	$(Q)cppcheck -q -j2 --cppcheck-build-dir=$(B)/lint/cppcheck.cache --std=c11 --language=c --enable=warning,performance,portability \
	    --error-exitcode=1 --inline-suppr --suppressions-list=tools/cppcheck.txt -D__linux__ -D__x86_64__ \
	    $(filter -D% -I%,$(CPPFLAGS)) $(LINTED)
	@touch $@

# Runs the tests anew: counters of the last time are removed first. The corpora of the fuzz targets run alone, then again with
# all others. ONLY=WORD: tests whose name contains it, and figures without goals.
COVERAGE  := $(S)/coverage
RUN_COVERED = MAKE='$(MAKE_COMMAND)' /usr/bin/python3 tools/run-tests coverage
coverage: $(SETUP_COVERAGE_STAMP)
	@mkdir -p $(COVERAGE) && find $(COVERAGE) -name '*.gcda' -delete && rm -f $(COVERAGE)/parsers.json
ifndef ONLY
	@$(RUN_COVERED) -k coverage/fuzz/ && /usr/bin/python3 tools/coverage $(COVERAGE) parsers
endif
	@$(RUN_COVERED) $(if $(ONLY),-k '$(ONLY)'); failed=$$?; \
	    /usr/bin/python3 tools/coverage $(COVERAGE) $(if $(ONLY),figures,goals) && exit $$failed
