# SPDX-License-Identifier: Apache-2.0
# tests/gpu/rules.mk: the bundle for a machine with a GPU and nothing of ours (docs/gpu.md). Included by the Makefile.
# All tests of device code in one program: each alone would bring the libraries and all kernels again. But for those that stand
# between Gyre and a library with functions of the same names (they are not in the bundle, whose UCX knows no CUDA memory anyway),
# or is a profiler.
GPU_ALONE    := ranks/mp_direct ranks/mp_unable ranks/mp_wire test_ranges
GPU_TESTS    := $(filter-out $(GPU_ALONE),$(patsubst $(B)/tests/gpu/%,%,$(filter $(B)/tests/gpu/%,$(TESTS) $(MP_TESTS) $(LAB_PROGRAMS))))
GPU_PROGRAMS := $(addprefix $(B)/bin/,$(filter ucx-run gyre-perf gyre-train gyre-doctor,$(TOOLS))) $(B)/tests/gpu/many
$(B)/obj/tests/gpu/many/%.o: $(B)/obj/tests/gpu/%.o
	@mkdir -p $(@D)
	@more=$$(nm -g --defined-only $< | awk '$$3 != "main" { print $$3 }'); [ -z "$$more" ] || \
	    { echo "$*: other programs in tests/gpu/many would call its" $$more ": one for GPU_ALONE"; exit 1; }
	$(Q)objcopy --redefine-sym main=$(notdir $*)_main $< $@
$(B)/tests/gpu/many: $(GPU_TESTS:%=$(B)/obj/tests/gpu/many/%.o) $(call cu_obj,$(TEST_CU)) $(call obj,$(SUPPORT_SRC)) \
    $(ARCHIVES) tests/gpu/many.c
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) $(LDFLAGS) -DPROGRAMS='$(foreach t,$(notdir $(GPU_TESTS)),X($(t)))' tests/gpu/many.c $(filter %.o,$^) \
	    $(ARCHIVES) $(LIBS_TRAIN) $(TOOL_LIBS) -lcmocka -o $@
.PHONY: gpu-bundle gpu-check tests-of-check
ifeq ($(CUDA)$(SANITIZE)$(findstring x86_64,$(MACHINE)),1x86_64)
tests: $(B)/tests/gpu/many
# What make check builds: its tests of device code run on the emulator, and one program shows that they link for a GPU.
tests-of-check: $(B)/tests/gpu/many $(filter-out $(GPU_TESTS:%=$(B)/tests/gpu/%),$(TESTS) $(MP_TESTS) $(LAB_PROGRAMS))
gpu-bundle: $(GPU_PROGRAMS) $(SETUP_BUNDLE_STAMP)
	@bash tools/gpu-bundle '$(B)'
gpu-check: gpu-bundle
	@'$(B)'/gpu-bundle/gpu-check --out '$(B)' $(if $(ONLY),$(addprefix --only ,$(ONLY)))
else
tests-of-check: $(TESTS) $(MP_TESTS) $(LAB_PROGRAMS)
gpu-bundle gpu-check:
	@echo "the bundle needs the CUDA toolkit (CUDA=1), an x86-64, and no SANITIZE"; exit 1
endif
