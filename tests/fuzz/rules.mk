# SPDX-License-Identifier: Apache-2.0
# tests/fuzz/rules.mk: the fuzz targets once more, with clang's libFuzzer, below build/fuzz (docs/security.md). Included by
# the Makefile.
# Without CUDA, wherever: no parser is in a kernel, and nvcc's objects are not instrumented.
FUZZ_CC     ?= clang
FUZZ_DIR    := $(S)/fuzz
FUZZ_PARTS  := $(PLAIN_CPPFLAGS) $(TOOLS_CFLAGS) $(if $(filter 1,$(VERBS)),-DGYRE_VERBS=1)
FUZZ_LIBS    = $(filter-out $(CUDA_HOME)/lib64/libcudart_static.a,$(TOOL_LIBS))
FUZZ_CFLAGS := -std=c17 -O1 -g -fPIC -pthread -fno-omit-frame-pointer -fno-math-errno -ffp-contract=off \
    -fsanitize=address,undefined -fno-sanitize-recover=undefined
fuzz_obj = $(patsubst %.c,$(FUZZ_DIR)/obj/%.o,$(1))
FUZZ_BINS := $(patsubst tests/fuzz/%.c,$(FUZZ_DIR)/%,$(FUZZ_SRC))

$(FUZZ_DIR)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(FUZZ_CC) $(FUZZ_PARTS) $(FUZZ_CFLAGS)' | cmp -s - $@ || echo '$(FUZZ_CC) $(FUZZ_PARTS) $(FUZZ_CFLAGS)' > $@
$(FUZZ_DIR)/obj/%.o: %.c $(FUZZ_DIR)/flags | $(SETUP_STAMP)
	@mkdir -p $(@D)
	@echo "  FUZZ  $<"
	$(Q)$(FUZZ_CC) $(FUZZ_PARTS) $(FUZZ_CFLAGS) $(filter-out $(OF_GCC),$(CFLAGS_$*)) -fsanitize=fuzzer-no-link -MMD -MP -c $< -o $@

$(FUZZ_DIR)/libgyre.a: $(call fuzz_obj,$(CORE_SRC) $(PROOF_SRC) $(TRAIN_SRC)) $(CC_OBJ)
	@echo "  AR    $@"
	$(Q)rm -f $@ && ar rcs $@ $^

$(foreach t,$(FUZZ_WITH_PARTS),$(eval $(FUZZ_DIR)/fuzz_$(t): $(call fuzz_obj,$(FUZZ_PARTS_$(t)))))
$(FUZZ_BINS): $(FUZZ_DIR)/%: $(FUZZ_DIR)/obj/tests/fuzz/%.o $(FUZZ_DIR)/libgyre.a
	@echo "  LD    $@"
	$(Q)$(FUZZ_CC) $(FUZZ_CFLAGS) -fsanitize=fuzzer $(filter %.o,$^) $(FUZZ_DIR)/libgyre.a $(LIBS_TRAIN) $(FUZZ_LIBS) -o $@

fuzz: $(FUZZ_BINS)
$(call fuzz_obj,$(CORE_SRC) $(PROOF_SRC) $(TRAIN_SRC) $(FUZZ_SRC)): | $(SETUP_FUZZ_STAMP)
