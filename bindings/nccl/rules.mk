# SPDX-License-Identifier: Apache-2.0
# bindings/nccl/rules.mk: libgyre-nccl.so.2, and its tests on the emulator. Included by the Makefile.
NCCL_SRC := $(wildcard bindings/nccl/*.c)
# programs against nccl.h, which tests/bindings/gpu/nccl.sh runs
NCCL_TESTS := $(wildcard tests/bindings/gpu/nccl/*.c)
NCCL_INCLUDE := -isystem $(CUDA_HOME)/include
FOREIGN_C += $(NCCL_SRC)
$(foreach f,$(NCCL_SRC) $(NCCL_TESTS),$(eval CFLAGS_$(f:.c=) := -Ibindings/nccl $(NCCL_INCLUDE)))
NCCL_LIB := $(B)/lib/libgyre-nccl.so.2
.PHONY: nccl
ifeq ($(CUDA)$(SANITIZE),1)
LIB_NCCL := $(NCCL_LIB)
nccl: $(NCCL_LIB)
lib: $(NCCL_LIB)
else
nccl:
	@echo "libgyre-nccl.so.2 needs the CUDA toolkit (CUDA=1)"; exit 1
endif
# gyre-nccl/: for LD_LIBRARY_PATH, under the names that programs ask for; some open libnccl.so
$(NCCL_LIB): $(call obj,$(NCCL_SRC)) $(LIB_SO)
	@mkdir -p $(@D)/gyre-nccl
	@echo "  LD    $@"
	$(Q)$(CC) -shared -Wl,-soname,libgyre-nccl.so.2 -Wl,-z,defs $(ALL_CFLAGS) $(LDFLAGS) $(filter %.o,$^) \
	    -L$(B)/lib -lgyre -Wl,-rpath,'$$ORIGIN:$$ORIGIN/..' -Wl,--exclude-libs,ALL $(CUDA_HOME)/lib64/libcudart_static.a -lrt -ldl -lm -pthread -o $@
	$(Q)for name in libnccl.so.2 libnccl.so; do ln -sf ../libgyre-nccl.so.2 $(@D)/gyre-nccl/$$name; done
ifeq ($(CUDA)$(SANITIZE)$(findstring x86_64,$(MACHINE)),1x86_64)
emulated: $(patsubst tests/bindings/gpu/nccl/%.c,$(B)/emulated/nccl/%,$(NCCL_TESTS))
endif
$(B)/emulated/nccl/%: $(B)/obj/tests/bindings/gpu/nccl/%.o $(call obj,$(NCCL_SRC)) $(B)/emulated/libgyre.a $(B)/emulated/libemulated.a
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CUDA_HOST) -pthread $(filter %.o,$^) $(filter %.a,$^) $(E_LIBS) -rdynamic -o $@
