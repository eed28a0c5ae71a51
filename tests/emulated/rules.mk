# SPDX-License-Identifier: Apache-2.0
# tests/emulated/rules.mk: device code on the CPU: the same objects of C, with kernels that g++ builds for the emulator.
# Included by the Makefile.
E            := $(B)/emulated
E_FLAGS      := -std=gnu++17 -O2 -g1 -Wall -Wextra -Wshadow -Wno-unknown-pragmas $(if $(filter 1,$(WERROR)),-Werror) \
    -fno-math-errno -ffp-contract=off -pthread -fPIC -fno-semantic-interposition
# As a GPU: a vector that is loaded or stored at no multiple of its bytes ends the process (SIGILL).
E_CU_FLAGS   := -fsanitize=alignment -fsanitize-undefined-trap-on-error
e_obj         = $(patsubst %.cu,$(E)/obj/%.cu.o,$(1))
E_RUNTIME    := $(patsubst %.cc,$(E)/obj/%.o,$(wildcard tests/emulated/*.cc))
E_LIBS       := $(filter-out $(CUDA_HOME)/lib64/libcudart_static.a,$(TOOL_LIBS))
E_TOOLS      := $(filter gyre-perf gyre-train gyre-doctor,$(TOOLS))
E_TESTS      := $(patsubst tests/%.c,$(E)/tests/%,$(filter tests/gpu/%,$(TEST_SRC) $(MP_SRC))) $(addprefix $(E)/tests/gpu/,kernels/gpu_facts kernels/gpu_kernels ranks/gpu_peers)
E_FAILING    := $(E)/tests/failing/test_failing
E_EXAMPLES   := $(patsubst examples/%.cu,$(E)/examples/%,$(wildcard examples/*.cu))
# for programs of other languages: the library, and the emulator's CUDA
E_LIB_SO     := $(E)/lib/libgyre.so.$(SOVERSION)
E_ARCHIVES   := $(LIB_PROOF) $(E)/libgyre-train.a $(E)/libgyre.a $(E)/libemulated.a
E_LINK        = $(CUDA_HOST) $(TEST_LD) -pthread $(filter %.o,$^) $(E_ARCHIVES) $(LIBS_TRAIN) $(E_LIBS)
.PHONY: emulated
ifeq ($(CUDA)$(SANITIZE)$(findstring x86_64,$(MACHINE)),1x86_64)
emulated: $(E_LIB_SO) $(addprefix $(E)/bin/,$(E_TOOLS)) $(E_TESTS) $(E_FAILING) $(E_EXAMPLES)
else
emulated:
	@echo "the emulator needs the CUDA toolkit's headers (CUDA=1), an x86-64, and no SANITIZE"; exit 1
endif
$(E)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CUDA_HOST) $(CPPFLAGS) $(E_FLAGS) $(E_CU_FLAGS)' | cmp -s - $@ || \
	    echo '$(CUDA_HOST) $(CPPFLAGS) $(E_FLAGS) $(E_CU_FLAGS)' > $@
$(E)/obj/%.cu.o: %.cu $(E)/flags | $(SETUP_STAMP)
	@mkdir -p $(@D)
	@echo "  EMUL  $<"
	$(Q)$(CUDA_HOST) -x c++ -DGYRE_EMULATED=1 -Itests/emulated $(CPPFLAGS) $(E_FLAGS) $(E_CU_FLAGS) -MMD -MP -c $< -o $@
$(E)/obj/%.o: %.cc $(E)/flags | $(SETUP_STAMP)
	@mkdir -p $(@D)
	@echo "  CXX   $<"
	$(Q)$(CUDA_HOST) -Itests/emulated $(CPPFLAGS) $(E_FLAGS) -MMD -MP -c $< -o $@
$(E)/libgyre.a: $(call obj,$(CORE_SRC)) $(call e_obj,$(CORE_CU))
$(E)/libgyre-train.a: $(call obj,$(TRAIN_SRC)) $(CC_OBJ) $(call e_obj,$(TRAIN_CU))
$(E)/libemulated.a: $(E_RUNTIME)
$(E)/libgyre.a $(E)/libgyre-train.a $(E)/libemulated.a:
	@mkdir -p $(@D)
	@echo "  AR    $@"
	$(Q)rm -f $@ && ar rcs $@ $^
$(E)/lib/libemulated.so: $(E_RUNTIME)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CUDA_HOST) -shared -Wl,-soname,$(@F) -Wl,-z,defs -pthread $^ $(E_LIBS) -o $@
$(E_LIB_SO): $(call obj,$(CORE_SRC)) $(call e_obj,$(CORE_CU)) $(E)/lib/libemulated.so
	@echo "  LD    $@"
	$(Q)$(CUDA_HOST) -shared -Wl,-soname,$(@F) -Wl,-z,defs -pthread $^ $(E_LIBS) -Wl,-rpath,'$$ORIGIN' -o $@
define E_TOOL_RULE
$(E)/bin/$(1): $(call obj,tools/$(1).c $(call sources,tools/$(1),c)) $(SHARED_OBJ) $(E_ARCHIVES)
	@mkdir -p $$(@D)
	@echo "  LD    $$@"
	$(Q)$$(E_LINK) -o $$@
endef
$(foreach t,$(E_TOOLS),$(eval $(call E_TOOL_RULE,$(t))))
$(E)/tests/%: $(B)/obj/tests/%.o $(call e_obj,$(TEST_CU)) $(call obj,$(SUPPORT_SRC)) $(E_ARCHIVES)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(E_LINK) -lcmocka -o $@
# calls of CUDA that fail, besides what fails in every build (tests/failing)
$(E_FAILING): $(call obj,$(filter-out %/test_failing.c,$(call sources,tests/failing tests/gpu/failing,c)))
$(E_FAILING): private E_LIBS += $(FAILING_WRAPS)
$(E_EXAMPLES): $(E)/examples/%: $(E)/obj/examples/%.cu.o $(E_ARCHIVES)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(E_LINK) -o $@
# a stand-in for cuBLASLt
$(E)/tests/gpu/kernels/test_matmul: | $(if $(wildcard $(CUDA_HOME)/include/cublasLt.h),$(E)/tests/gpu/kernels/fake_cublaslt.so)
$(E)/tests/gpu/kernels/fake_cublaslt.so: $(call obj,tests/gpu/kernels/fake_cublaslt.c)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) -shared $(ALL_CFLAGS) $(LDFLAGS) $< -lm -o $@
# the same tests with nvcc's kernels, for a GPU
$(filter $(B)/tests/gpu/%,$(TESTS) $(MP_TESTS) $(LAB_PROGRAMS)): $(call cu_obj,$(TEST_CU))
