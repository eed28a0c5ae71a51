# `make help` lists what can be asked of it. Rules of the emulator, the GPU bundle, fuzzing, linters, benchmarks and
# `make install` are in the .mk files that it includes.
#
#   make [CUDA=0|1] [VERBS=0|1] [SENTENCEPIECE=0|1] [SANITIZE=address|thread|undefined] [WERROR=0|1] [V=1]
#
# What the machine has is found by itself and reported in one line each. Everything made lies under $(B).
#
# Set-up comes first: $(S)/config.mk is included below and holds what pkg-config says; its rule runs tools/setup,
# which installs what is missing, and make then starts over with the answers. So the first `make` of a fresh clone on
# a fresh machine works in one go.
# SPDX-License-Identifier: Apache-2.0

MAKEFLAGS += --no-builtin-rules --no-print-directory
# All cores, unless a -j says otherwise: one on the command line wins by itself, one in the environment has to be looked
# for, and `make clean all` wants its goals one after the other.
ifeq ($(MAKELEVEL)$(filter clean,$(MAKECMDGOALS))$(filter j% -j% --jobs%,$(shell echo "$$MAKEFLAGS")),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:

# the version's one place is the header; docs/abi.md says when SOVERSION changes
VERSION  := $(shell sed -n 's/^.define GYRE_VERSION  *"\(.*\)"/\1/p' include/gyre/version.h)
SOVERSION := 0
PREFIX   ?= /usr/local
DESTDIR  ?=
ifeq ($(origin CC),default)
CC       := gcc
endif
CLANG_FORMAT ?= clang-format
V        ?= 0
Q        := $(if $(filter 0,$(V)),@,)
SANITIZE ?=
, := ,
B        := build$(if $(SANITIZE),/$(SANITIZE))
# Another build with the same flags but other parts (CUDA, VERBS): `make B=build/x SHARE=build CUDA=0` takes from there
# the objects of all sources that do not ask which parts there are.
SHARE    := $(B)
# What all builds share, set-up's answers first: with `make B=DIR` nothing is written next to the sources.
S        := $(if $(findstring command,$(origin B)),$(SHARE),build)

# ---- set-up: what must be installed -------------------------------------------------------------
# libgyre needs the first, and the headers of what it loads when that is needed; tools need jansson, training both others, too.
PKGS_CORE  := hwloc libsodium libxxhash
PKGS_LOADED := ucx
PKGS_JSON  := jansson
PKGS_TRAIN := openblas libpcre2-8 libutf8proc
SETUP_STAMP := $(S)/setup.done
SETUP_LIB_STAMP := $(S)/setup-lib.done
SETUP_CHECK_STAMP := $(S)/setup-check.done
SETUP_FUZZ_STAMP := $(S)/setup-fuzz.done
SETUP_PYTHON_STAMP := $(S)/setup-python.done
SETUP_LAUNCH_STAMP := $(S)/setup-launch.done
SETUP_VERBS_STAMP := $(S)/setup-verbs.done
SETUP_ARM_STAMP := $(S)/setup-arm.done
SETUP_MPI_STAMP := $(S)/setup-mpi-codes.done
SETUP_HOSTS_STAMP := $(S)/setup-hosts.done
SETUP_BUNDLE_STAMP := $(S)/setup-bundle.done
# Goals that need neither packages nor a compiler.
ifneq ($(filter-out clean help uninstall format check-fresh dist deb check-deb,$(or $(MAKECMDGOALS),all)),)
include $(S)/config.mk
# These goals want libgyre alone, and what it needs.
LIB_ALONE := $(if $(filter-out lib install-lib clean help uninstall,$(or $(MAKECMDGOALS),all)),,1)
ifndef LIB_ALONE
include $(S)/config-tools.mk
endif
# The answers are one compiler's: another one is asked anew.
ifneq ($(strip $(CONFIG_CC)),$(strip $(CC)))
$(S)/config.mk: FORCE
endif
endif

# ---- what is asked for wrongly: one line each, with the command that helps ---------------------------------------------
ifneq ($(word 2,$(B)),)
$(error B='$(B)': the name of a build folder has no spaces (the sources may lie in a folder with spaces))
endif
# $(call needs,PROGRAM,PACKAGE): set-up saw it, or it is not among what set-up looks for
needs = $(if $(shell command -v '$(1)'),,$(error $(1) is missing; to install it: sudo apt-get install $(2)))
package_of = $(if $(filter gcc g++ cc,$(notdir $(1))),build-essential,$(notdir $(1)))
# COMPILER comes from config.mk: without it set-up runs first.
ifneq ($(COMPILER),)
$(call needs,$(lastword $(CC)),$(call package_of,$(lastword $(CC))))
endif

# `make check` makes all its builds by itself; a variable on its command line would bend every one of them.
ifneq ($(filter check check-quick check-long,$(MAKECMDGOALS)),)
ifneq ($(SANITIZE),)
$(error make check already covers address and thread; for another build: make SANITIZE=$(SANITIZE) tests)
endif
ifeq ($(origin B),command line)
$(error make check builds below build/; to build elsewhere: make B=$(B) all tests)
endif
endif

# ---- what the machine has --------------------------------------------------------------------------
CUDA_HOME ?= $(firstword $(wildcard /usr/local/cuda /usr/lib/cuda))
HAVE_CUDA  := $(if $(wildcard $(CUDA_HOME)/include/cuda_runtime.h),1,0)
HAVE_VERBS := $(if $(wildcard /usr/include/infiniband/verbs.h),1,0)
HAVE_SENTENCEPIECE := $(if $(wildcard /usr/include/sentencepiece_processor.h),1,0)
CUDA  ?= $(HAVE_CUDA)
VERBS ?= $(HAVE_VERBS)
SENTENCEPIECE ?= $(HAVE_SENTENCEPIECE)
NO_CUDA  := no toolkit found: GPU memory is off
NO_VERBS := no rdma-core headers found
NO_SENTENCEPIECE := $(if $(filter 1,$(HAVE_SENTENCEPIECE)),as asked; its headers are here,no headers found)
ifeq ($(CUDA)$(HAVE_CUDA),10)
$(error CUDA=1: no toolkit in CUDA_HOME='$(CUDA_HOME)'; name it with CUDA_HOME=DIR, or: sudo apt-get install nvidia-cuda-toolkit)
endif
ifeq ($(VERBS)$(HAVE_VERBS),10)
$(error VERBS=1: no headers of rdma-core; to install them: sudo apt-get install libibverbs-dev)
endif
ifeq ($(SENTENCEPIECE)$(HAVE_SENTENCEPIECE),10)
$(error SENTENCEPIECE=1: no headers of SentencePiece; to install them: sudo apt-get install libsentencepiece-dev)
endif
ifeq ($(HAVE_CUDA),1)
NO_CUDA  := as asked; the toolkit is in $(CUDA_HOME)
endif
ifeq ($(HAVE_VERBS),1)
NO_VERBS := as asked; rdma-core's headers are here
endif

# ---- flags --------------------------------------------------------------------------------------------
# -g1: backtraces and profiles name functions and lines, and all builds a quarter sooner than with -g. For a debugger that
# shows variables: make OPT='-Og -g'
OPT      ?= -O3 -g1
# of tests/: they are many, and so take two thirds of the time
TEST_OPT ?= -O1 -g1
# Warnings are errors with the compilers that we have seen; a newer one knows warnings that we have not.
WERROR   ?= $(if $(filter gcc-9 gcc-10 gcc-11 gcc-12,$(COMPILER)),1,0)
# Not in an instrumented build, of the same sources: a tenth of its time.
WARN     := $(if $(SANITIZE),,-Wall -Wextra -Wpedantic -Wshadow -Wconversion $(if $(filter 1,$(WERROR)),-Werror))
CPPFLAGS := -D_GNU_SOURCE -I. -Iinclude
CFLAGS   ?=
ALL_CFLAGS := -std=c17 $(OPT) $(WARN) -fPIC -fvisibility=hidden -pthread -fno-math-errno -ffp-contract=off $(CFLAGS)
LDFLAGS  ?=
LIBS     := -Wl,--as-needed $(CORE_LIBS) -ldl -lm -pthread
# of tools and tests; LIBS begins with --as-needed, so a program gets jansson only if it uses it
TOOL_LIBS = $(LIBS) $(JSON_LIBS)
# its pkg-config names the library that trains tokenizers, too
SENTENCEPIECE_LIBS := $(if $(filter 1,$(SENTENCEPIECE)),-lsentencepiece -lstdc++)
LIBS_TRAIN := $(TRAIN_LIBS) $(SENTENCEPIECE_LIBS)
CPPFLAGS += $(CORE_CFLAGS)
PLAIN_CPPFLAGS := $(CPPFLAGS)
# -g1: reports name lines and functions; all that -g has would take a third longer to build
ifeq ($(SANITIZE),address)
# -O0: a file compiles in little more than half of the time that -O1 takes. See ASAN_FASTER. UBSan looks at the product alone.
TEST_OPT := -O0 -g1 -fno-sanitize=undefined
ALL_CFLAGS += -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -O0 -g1
# Programs of gcc 13 and later crash on locals aligned to 64 bytes when ASan watches for uses after return (gcc's bug
# 110027), which these versions do by default.
ALL_CFLAGS += $(if $(filter gcc-%,$(COMPILER)),--param=asan-use-after-return=0)
else ifeq ($(SANITIZE),undefined)
ALL_CFLAGS += -fsanitize=undefined -fno-sanitize-recover=undefined -O1
else ifeq ($(SANITIZE),thread)
ALL_CFLAGS += -fsanitize=thread -O1 -g1
# UCX patches mmap and friends in every process that it is loaded into, and libtsan then crashes when a thread
# starts (openucx/ucx issue 8475). Tests run by hand need the same variable.
export UCX_MEM_EVENTS := no
else ifeq ($(SANITIZE),coverage)
# make coverage; counters of threads must not lose counts, nor those of processes that a test ends by _exit
ALL_CFLAGS += --coverage -fprofile-update=atomic -O1
COUNTED_EXIT := -Wl,--wrap=_exit -Wl,-u,__gcov_dump
else ifneq ($(SANITIZE),)
$(error SANITIZE=$(SANITIZE) is not one of address, thread, undefined, coverage)
endif
ifeq ($(CUDA),1)
CPPFLAGS += -DGYRE_CUDA=1 -isystem $(CUDA_HOME)/include
LIBS += $(CUDA_HOME)/lib64/libcudart_static.a -lrt
endif
ifeq ($(VERBS),1)
CPPFLAGS += -DGYRE_VERBS=1
LIBS += -libverbs
endif

# files that are built for more than the compiler's baseline: only collectives/kernels/reduce.c calls them, after asking
# the CPU
ifneq ($(findstring x86_64,$(MACHINE)),)
CFLAGS_collectives/kernels/avx2   := -mavx2 -mf16c -mfma
CFLAGS_collectives/kernels/avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mf16c -mfma -mprefer-vector-width=512
endif
# Selections of a vector loop are blends only where no one watches floating-point exceptions. No bit changes.
$(foreach set,scalar neon avx2 avx512,$(eval CFLAGS_collectives/kernels/$(set) += -fno-trapping-math))
# The scalar set is for processors without AVX2: half of the time to compile, and a third of the size.
CFLAGS_collectives/kernels/scalar += $(if $(findstring x86_64,$(MACHINE)),$(if $(findstring gcc,$(COMPILER)),-fvect-cost-model=very-cheap))
# clang has no such options: lint and fuzz leave them out.
OF_GCC := -mprefer-vector-width=512 -fvect-cost-model=very-cheap
CFLAGS_model/kernels/base   := -fno-trapping-math
CFLAGS_model/kernels/avx2   := -fno-trapping-math
CFLAGS_model/kernels/avx512 := -fno-trapping-math
CFLAGS_tests/model/f64/kernels := -fno-trapping-math

# ---- sources: a module is a folder; everything in it, and in the folders below it, is built -----------------
# $(call sources,MODULES,SUFFIX)
sources = $(foreach d,$(1) $(addsuffix /*,$(1)) $(addsuffix /*/*,$(1)),$(wildcard $(d)/*.$(2)))
CORE_MODULES  := base topo comm collectives
# of these, modules that libgyre does without (tools/check-layers holds it to that): for tools and tests alone, libgyre-proof,
PROOF_MODULES := topo/orders topo/drawing topo/network collectives/proof
# and what needs jansson, which libgyre-train has
TEXT_MODULES  := base/text
TRAIN_MODULES := model optim pipeline
# comm/verbs/ and its tests are part of a build with verbs only
WITHOUT     := $(if $(filter 1,$(VERBS)),,comm/verbs/% tests/comm/verbs/% tests/fuzz/fuzz_hello.c)
# tests/gpu/ is part of a build with CUDA only: what it links with nvcc's kernels is for a machine with a GPU, and
# what it links with the emulator (below) runs anywhere; not instrumented
WITHOUT     += $(if $(filter 1,$(SENTENCEPIECE)),model/tokenizer/no_sentencepiece.c)
WITHOUT     += $(if $(filter 1,$(CUDA)),$(if $(SANITIZE),tests/gpu/%),tests/gpu/%)
CORE_SRC    := $(filter-out $(WITHOUT) $(addsuffix /%,$(PROOF_MODULES) $(TEXT_MODULES)),$(call sources,$(CORE_MODULES),c))
PROOF_SRC   := $(call sources,$(PROOF_MODULES),c)
TRAIN_SRC   := $(filter-out $(WITHOUT),$(call sources,$(TEXT_MODULES) $(TRAIN_MODULES),c))
# C++ below C calls
TRAIN_CC    := $(if $(filter 1,$(SENTENCEPIECE)),$(call sources,$(TRAIN_MODULES),cc))
# what tests under ASan compute with for long
ASAN_FASTER := $(filter collectives/schedules/% collectives/proof/% model/jinja/% model/network/% model/kernels/% model/random.c,$(CORE_SRC) $(PROOF_SRC) $(TRAIN_SRC)) \
    $(wildcard tests/model/f64/*.c tests/collectives/schedules/test_interleave.c tests/collectives/kernels/test_kernels.c)
ifeq ($(SANITIZE),address)
$(foreach f,$(ASAN_FASTER),$(eval CFLAGS_$(f:.c=) += -O1))
endif
ifeq ($(CUDA),1)
CORE_CU     := $(call sources,$(CORE_MODULES),cu)
TRAIN_CU    := $(call sources,$(TRAIN_MODULES),cu)
TEST_CU     := $(wildcard tests/gpu/*.cu)
endif
TEST_SRC    := $(filter-out $(WITHOUT),$(wildcard tests/*/test_*.c tests/*/*/test_*.c))
MP_SRC      := $(filter-out $(WITHOUT),$(wildcard tests/*/mp_*.c tests/*/*/mp_*.c))
FUZZ_SRC    := $(filter-out $(WITHOUT),$(wildcard tests/fuzz/fuzz_*.c))
SUPPORT_SRC := $(filter-out tests/support/test_%,$(wildcard tests/support/*.c))
F64_SRC     := $(wildcard tests/model/f64/*.c)
EXAMPLE_SRC := $(filter-out examples/bootstrap_mpi.c,$(wildcard examples/*.c)) # tests/system/examples.sh builds that

# Sources that ask which parts there are. All others are compiled without those macros, and $(SHARE)/no-parts.h sees to it
# that they do not ask.
PARTED    := $(shell grep -rlwE 'GYRE_(CUDA|VERBS)' --include='*.c' $(CORE_MODULES) $(TRAIN_MODULES) tools tests bench examples) \
    $(wildcard tests/gpu/*.c tests/gpu/*/*.c)
ifeq ($(SHARE),$(B))
obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
else
obj = $(patsubst %.c,$(B)/obj/%.o,$(filter $(PARTED),$(1))) $(patsubst %.c,$(SHARE)/obj/%.o,$(filter-out $(PARTED),$(1)))
endif
# nvcc's objects are the same in an instrumented build, and take long
CU_B  := $(if $(SANITIZE),$(S),$(B))
cu_obj = $(patsubst %.cu,$(CU_B)/obj/%.cu.o,$(1))
CORE_OBJ  := $(call obj,$(CORE_SRC)) $(call cu_obj,$(CORE_CU))
PROOF_OBJ := $(call obj,$(PROOF_SRC))
CC_OBJ    := $(patsubst %.cc,$(SHARE)/obj/%.cc.o,$(TRAIN_CC))
TRAIN_OBJ := $(call obj,$(TRAIN_SRC)) $(CC_OBJ) $(call cu_obj,$(TRAIN_CU))
TOOLS     := ucx-run gyre-perf gyre-topo gyre-plan gyre-train gyre-generate gyre-eval gyre-tokenize gyre-doctor
# a tool is tools/<name>.c plus the files of tools/<name>/, if any
TOOLS     := $(foreach t,$(TOOLS),$(if $(wildcard tools/$(t).c),$(t)))
TOOL_BINS := $(addprefix $(B)/bin/,$(TOOLS))
TESTS     := $(patsubst tests/%.c,$(B)/tests/%,$(TEST_SRC))
MP_TESTS  := $(patsubst tests/%.c,$(B)/tests/%,$(MP_SRC))
FUZZ_RUNS := $(patsubst tests/%.c,$(B)/tests/%,$(FUZZ_SRC))
# programs that the labs' checks and gpu-check run
LAB_PROGRAMS := $(addprefix $(B)/tests/,verbs/pair verbs/survivor $(if $(filter 1,$(CUDA)),gpu/kernels/gpu_facts gpu/kernels/gpu_kernels gpu/ranks/gpu_peers))
EXAMPLES  := $(patsubst examples/%.c,$(B)/examples/%,$(EXAMPLE_SRC))
CU_EXAMPLES := $(if $(filter 1,$(CUDA)),$(patsubst examples/%.cu,$(B)/examples/%,$(wildcard examples/*.cu)))

LIB_SO := $(B)/lib/libgyre.so.$(SOVERSION)
LIB_A  := $(B)/lib/libgyre.a
LIB_TRAIN := $(B)/lib/libgyre-train.a
# sanitizers have a malloc of their own
LIB_MALLOC := $(if $(SANITIZE),,$(B)/lib/libgyre-malloc.so)
LIB_PROOF := $(B)/lib/libgyre-proof.a
# what tools and tests are linked with: they may look inside
ARCHIVES := $(LIB_PROOF) $(LIB_TRAIN) $(LIB_A)

.PHONY: all lib tools tests examples report clean help check check-abi check-arm check-bindings check-quick left-out formatted check-contributing check-hosts check-faults check-all check-fuzz check-launch check-layouts check-recipes check-long check-oom check-plan check-generate check-tokenizers check-mpi check-reshard check-verbs fuzz format words demo bench bench-generate bench-instructions bench-peers bench-train bench-waiters install install-lib install-train uninstall FORCE
all: report lib $(LIB_TRAIN) tools examples
lib: $(LIB_SO) $(LIB_A) $(LIB_MALLOC)
tools: $(TOOL_BINS)
tests: $(TESTS) $(MP_TESTS) $(FUZZ_RUNS) $(LAB_PROGRAMS)
examples: $(EXAMPLES) $(CU_EXAMPLES)

report:
	@echo "CUDA=$(CUDA)$(if $(filter 1,$(CUDA)), ($(CUDA_HOME)), ($(NO_CUDA)))"
	@echo "VERBS=$(VERBS)$(if $(filter 1,$(VERBS)), (libibverbs), ($(NO_VERBS)))"
	@echo "SENTENCEPIECE=$(SENTENCEPIECE)$(if $(filter 1,$(SENTENCEPIECE)), (libsentencepiece), ($(NO_SENTENCEPIECE)))"
	@$(if $(SANITIZE),echo "SANITIZE=$(SANITIZE)",true)

# Everything is built anew when the flags change; what asks for the parts, also when those do.
BUILT_WITH := $(CC) $(COMPILER) $(PLAIN_CPPFLAGS) $(ALL_CFLAGS)
PARTS_WITH := $(CPPFLAGS) $(LDFLAGS) $(LIBS) $(SENTENCEPIECE_LIBS)
# A build without a part refuses the part's headers, also where they happen to be installed.
WITHOUT_H  := \#pragma GCC poison gyre_no_such_part$(if $(filter 0,$(CUDA)), cudaError_t)$(if $(filter 0,$(VERBS)), ibv_context)
$(SHARE)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(BUILT_WITH)' | cmp -s - $@ || { echo '#pragma GCC poison GYRE_CUDA GYRE_VERBS' >$(@D)/no-parts.h; \
	    echo '$(BUILT_WITH)' > $@; }
$(B)/flags-parts: FORCE
	@mkdir -p $(@D)
	@echo '$(PARTS_WITH)' | cmp -s - $@ && test -e $(@D)/without.h || { echo '$(WITHOUT_H)' >$(@D)/without.h; echo '$(PARTS_WITH)' > $@; }
$(patsubst %.c,$(B)/obj/%.o,$(PARTED)): $(B)/flags-parts

define COMPILE
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(call FLAGS_OF,$<) -MMD -MP -c $< -o $@
endef
FLAGS_OF = $(if $(filter $(1),$(PARTED)),$(CPPFLAGS) -include $(B)/without.h,$(PLAIN_CPPFLAGS) -include $(SHARE)/no-parts.h) \
    $(if $(filter $(1),$(CORE_SRC)),,$(TOOLS_CFLAGS)) $(ALL_CFLAGS) $(if $(filter tests/%,$(filter-out tests/model/f64/%,$(1))),$(TEST_OPT)) $(CFLAGS_$(1:.c=))
$(B)/obj/%.o: %.c $(SHARE)/flags | $(SETUP_LIB_STAMP)
	$(COMPILE)
ifneq ($(SHARE),$(B))
$(SHARE)/obj/%.o: %.c $(SHARE)/flags | $(SETUP_LIB_STAMP)
	$(COMPILE)
endif

# C++
CXX ?= g++
$(SHARE)/obj/%.cc.o: %.cc $(SHARE)/flags | $(SETUP_LIB_STAMP)
	@mkdir -p $(@D)
	@echo "  CXX   $<"
	$(Q)$(CXX) $(PLAIN_CPPFLAGS) $(patsubst -std=c17,-std=c++17,$(ALL_CFLAGS)) -MMD -MP -c $< -o $@

# CUDA sources. Contraction is off: results are those of the CPU, bit for bit; a file whose products may fuse says so
# with CUFLAGS_<file> := --fmad=true. Nothing of libstdc++ is linked: what nvcc's stubs keep in statics is the same value
# whichever thread asks first.
NVCC        ?= $(CUDA_HOME)/bin/nvcc
CUDA_HOST   ?= g++
# Machine code for Ampere, Hopper and, where nvcc knows them, Blackwell: from PTX alone the driver would compile for half
# a minute in the first collective. Others take the PTX. One of them builds in a third of the time: CUDA_ARCHES=...
CUDA_ARCHES ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90] \
    $(foreach n,$(filter 100 120,$(patsubst sm_%,%,$(shell $(NVCC) --list-gpu-code 2>/dev/null))),-gencode arch=compute_$(n),code=sm_$(n))
ifeq ($(CUDA)$(strip $(CUDA_ARCHES)),1)
$(error CUDA_ARCHES is empty: leave it out for all, or name one, such as CUDA_ARCHES='-gencode arch=compute_90,code=sm_90')
endif
CUFLAGS     ?=
# Images packed tighter: a third of the size (model/gpu/layers/elementwise: 65 KB instead of 215). Drivers below those that a toolkit of 13
# asks for anyway may not know them.
CU_SMALL    := $(shell $(NVCC) --version 2>/dev/null | grep -q 'release 1[3-9]' && echo --compress-mode=size)
# What the compiler reports of each kernel (registers, spills) lies beside its object, for tests/gpu/registers.sh.
ALL_CUFLAGS := -std=c++17 -O3 --resource-usage $(CUDA_ARCHES) $(CU_SMALL) -ccbin $(CUDA_HOST) $(if $(filter 1,$(WERROR)),-Werror all-warnings) \
    -Xcompiler -Wall$(,)-Wextra$(,)-fPIC$(,)-fvisibility=hidden$(,)-fno-exceptions$(,)-fno-rtti$(,)-fno-threadsafe-statics $(CUFLAGS)
# products, whose sums are the tensor cores' or the library's anyway
CUFLAGS_model/gpu/products/matmul := --fmad=true
CUFLAGS_model/gpu/attention/mma   := --fmad=true
CUFLAGS_model/gpu/attention/f32   := --fmad=true
# wgmma is an instruction of sm_90a alone: built once, and only where sm_90 is built at all.
HOPPER_CU   := model/gpu/attention/wgmma tests/gpu/language_wgmma
HOPPER_ARCH := $(if $(findstring 90,$(CUDA_ARCHES)),-gencode arch=compute_90a$(,)code=sm_90a,$(CUDA_ARCHES) -DGYRE_NO_WGMMA)
cu_arches    = $(if $(filter $(HOPPER_CU),$(1)),$(HOPPER_ARCH),$(CUDA_ARCHES))
CUFLAGS_model/gpu/attention/wgmma := --fmad=true
$(CU_B)/cuflags: FORCE
	@mkdir -p $(@D)
	@echo '$(NVCC) $(CPPFLAGS) $(ALL_CUFLAGS)' | cmp -s - $@ || echo '$(NVCC) $(CPPFLAGS) $(ALL_CUFLAGS)' > $@
$(CU_B)/obj/%.cu.o: %.cu $(CU_B)/cuflags | $(SETUP_LIB_STAMP)
	@mkdir -p $(@D)
	@echo "  NVCC  $<"
	$(Q)$(NVCC) $(filter-out -pthread,$(CPPFLAGS)) $(subst $(CUDA_ARCHES),$(call cu_arches,$*),$(ALL_CUFLAGS)) $(or $(CUFLAGS_$*),--fmad=false) -MMD -MP -MF $(@:.o=.d) -c $< -o $@ \
	    2>$(@:.o=.usage) || { cat $(@:.o=.usage) >&2; exit 1; }
	@grep -vE '^(ptxas )?info|^ +[0-9]+ bytes ' $(@:.o=.usage) >&2 || :

# nodelete: its threads go on after a dlclose
$(LIB_SO): $(CORE_OBJ) libgyre.map
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) -shared -Wl,-soname,libgyre.so.$(SOVERSION) -Wl,-z,nodelete -Wl,--version-script=libgyre.map -Wl,-z,defs \
	    $(ALL_CFLAGS) $(LDFLAGS) $(CORE_OBJ) $(LIBS) -o $@
	$(Q)ln -sf libgyre.so.$(SOVERSION) $(B)/lib/libgyre.so

$(LIB_A): $(CORE_OBJ)
	@mkdir -p $(@D)
	@echo "  AR    $@"
	$(Q)rm -f $@ && ar rcs $@ $^

$(LIB_TRAIN): $(TRAIN_OBJ) $(B)/flags-parts
	@mkdir -p $(@D)
	@echo "  AR    $@"
	$(Q)rm -f $@ && ar rcs $@ $(TRAIN_OBJ)

$(LIB_PROOF): $(PROOF_OBJ)
	@mkdir -p $(@D)
	@echo "  AR    $@"
	$(Q)rm -f $@ && ar rcs $@ $^

# what tools share: tools/shared/
SHARED_OBJ := $(call obj,$(call sources,tools/shared,c))
define TOOL_RULE
$(B)/bin/$(1): $(call obj,tools/$(1).c $(call sources,tools/$(1),c)) $(SHARED_OBJ) $(ARCHIVES) bindings/malloc/used.list
	@mkdir -p $$(@D)
	@echo "  LD    $$@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -Wl,--dynamic-list=bindings/malloc/used.list $$(filter %.o,$$^) $(ARCHIVES) \
	    $$(if $$(filter gyre-train gyre-generate gyre-eval gyre-tokenize gyre-plan,$(1)),$$(LIBS_TRAIN)) $$(TOOL_LIBS) -o $$@
endef
$(foreach t,$(TOOLS),$(eval $(call TOOL_RULE,$(t))))

# gyre-perf goes by nccl-tests' names, too.
PERF_NAMES := $(if $(filter gyre-perf,$(TOOLS)),$(addsuffix _perf,all_reduce all_gather broadcast reduce reduce_scatter \
    alltoall alltoallv gather scatter sendrecv))
PERF_LINKS := $(addprefix $(B)/bin/,$(PERF_NAMES))
tools: $(PERF_LINKS)
$(PERF_LINKS): $(B)/bin/gyre-perf
	$(Q)ln -sf gyre-perf $@

# its parts are tested without its main
$(B)/tests/tools/perf/test_perf $(B)/tests/tools/perf/test_perf_parts: $(call obj,$(call sources,tools/gyre-perf,c)) $(SHARED_OBJ)
$(B)/tests/tools/test_flags: $(SHARED_OBJ)
$(B)/tests/tools/test_doctor: $(call obj,$(call sources,tools/gyre-doctor,c)) $(SHARED_OBJ)
$(B)/tests/tools/test_plan: $(call obj,$(call sources,tools/gyre-plan,c)) $(SHARED_OBJ)
$(B)/tests/tools/test_run_parts: $(call obj,$(call sources,tools/ucx-run,c)) $(SHARED_OBJ)
$(B)/tests/tools/train/test_gyre_train: $(call obj,$(call sources,tools/gyre-train,c)) $(SHARED_OBJ)
# fuzz targets with a main that runs them on files; some look into a tool
FUZZ_PARTS_config   := $(call sources,tools/gyre-train tools/shared,c)
FUZZ_PARTS_tensors  := $(call sources,tools/gyre-perf tools/shared,c)
FUZZ_PARTS_hostlist := tools/ucx-run/hosts/hostlist.c
FUZZ_PARTS_wire     := tools/ucx-run/hosts/wire.c tools/ucx-run/hosts/buffer.c
FUZZ_PARTS_rows     := $(call sources,tools/gyre-plan tools/shared,c)
FUZZ_WITH_PARTS     := config tensors hostlist wire rows
$(FUZZ_RUNS): $(call obj,tests/fuzz/driver.c)
$(foreach t,$(FUZZ_WITH_PARTS),$(eval $(B)/tests/fuzz/fuzz_$(t): $(call obj,$(FUZZ_PARTS_$(t)))))
# requests that fail: the linker sends the calls of Gyre's objects to tests/failing/inject.c
FAILING_WRAPS := $(patsubst %,-Wl$(,)--wrap=%,$(shell grep ^FAILS tests/failing/inject.c | cut -d, -f3))
$(B)/tests/failing/test_failing: $(call obj,$(filter-out %/test_failing.c,$(call sources,tests/failing,c)))
$(B)/tests/failing/test_failing: private LDFLAGS += $(FAILING_WRAPS)
# gradient checks run the model in double
F64_TESTS := $(addprefix $(B)/tests/model/,test_attention test_gradient test_kernels test_math test_router test_stage \
    test_stage_calls test_stage_copies test_stage_masks test_stage_parts test_gpt_oss mp_hf)
$(F64_TESTS): $(call obj,$(F64_SRC))
$(call obj,$(TEST_SRC) $(MP_SRC) $(SUPPORT_SRC) $(F64_SRC) $(FUZZ_SRC) tests/fuzz/driver.c) $(patsubst $(B)/%,$(B)/obj/%.o,$(LAB_PROGRAMS)): | $(SETUP_CHECK_STAMP)
# They are many: gold (in Debian's binutils) takes 0.6 of the time of ld, and lld 0.4.
TEST_LD   := $(if $(shell command -v ld.lld),-fuse-ld=lld,$(if $(shell command -v ld.gold),-fuse-ld=gold))
LINK_TEST = $(CC) $(ALL_CFLAGS) $(TEST_LD) $(COUNTED_EXIT) $(LDFLAGS) $(filter %.o,$^) $(ARCHIVES) \
    $(if $(filter model optim pipeline fuzz failing,$(firstword $(subst /, ,$(@:$(B)/tests/%=%))))$(findstring /tests/gpu/,$@)$(filter test_gyre_train test_plan,$(notdir $@)),$(LIBS_TRAIN)) $(TOOL_LIBS) -lcmocka -o $@
$(B)/tests/%: $(B)/obj/tests/%.o $(call obj,$(SUPPORT_SRC)) $(ARCHIVES)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(LINK_TEST)

# of the examples, this one trains
$(B)/examples/train: $(SHARE)/obj/examples/train.o $(LIB_TRAIN) $(LIB_A)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $< $(LIB_TRAIN) $(LIB_A) $(LIBS_TRAIN) $(TOOL_LIBS) -o $@

$(CU_EXAMPLES): $(B)/examples/%: $(CU_B)/obj/examples/%.cu.o $(LIB_A)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $< $(LIB_A) $(LIBS) -o $@

$(B)/examples/%: $(SHARE)/obj/examples/%.o $(LIB_A)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $< $(LIB_A) $(LIBS) -o $@

include $(wildcard bindings/*/rules.mk)
include tests/emulated/rules.mk
include tests/gpu/rules.mk
include tests/fuzz/rules.mk
include tools/lint.mk

# ---- what people ask for ---------------------------------------------------------------------------------
help:
	@echo "make               libgyre, libgyre-train, the tools and examples, under build/"
	@echo "make demo          set-up, build, a benchmark and a short training run (DATA=FILE|DIR to train on that)"
	@echo "make check         set-up, build, every test, also under ASan+UBSan and TSan; a summary line at the end"
	@echo "make check-quick   layers, words, format, the fast unit tests and programs of two ranks: within a minute"
	@echo "make check-bindings  the tests of MPI, PyTorch, C++, Fortran, Python, malloc and, on the emulator, NCCL (bindings/), which make check has, too"
	@echo "make check-long    the tests of make check that have a longer form, in that form: long sweeps, more ranks under sanitizers"
	@echo "make emulated      gyre-perf, gyre-train and the tests of device code with kernels that run on the CPU, in build/emulated"
	@echo "make gpu-bundle    build/gpu-bundle(.tar.gz): programs and libraries for another x86-64 Linux with a GPU, under 60 MiB (docs/gpu.md)"
	@echo "make gpu-check     the same, and its gpu-check run here: tests, rates and goals in at most eight minutes (ONLY=\"WORD ...\")"
	@echo "make fuzz          the fuzz targets with clang's libFuzzer, below build/fuzz (docs/security.md)"
	@echo "make check-hosts   collectives, bandwidth, failures and recovery over hosts that are namespaces of this machine (root;"
	@echo "                   ONLY=\"collectives places bandwidth rails failures shrink train\": some of its parts)"
	@echo "make check-contributing     what docs/contributing/ promises: a toy of each kind, made by its patch in a copy (ONLY=NAME)"
	@echo "make check-recipes every published run of examples/recipes, tiny: its loss falls, its bits are those of one process (ONLY=NAME)"
	@echo "make check-plan    gyre-plan against published runs, by source, next to the simplest baseline: docs/planning.md"
	@echo "make check-layouts training in more than 100 layouts, in all precisions: the same bits (ONLY=WORD: some of them)"
	@echo "make check-faults  random jobs that lose ranks, hosts and links: hangs, wrong bits, leftovers (root; ROUNDS=N LANES=N SEED=S FIRST=K ROUND=K FAULTS=)"
	@echo "make check-fuzz    each fuzz target for a minute (FUZZ_SECONDS=N ONLY=WORD)"
	@echo "make check-all     every suite, one after the other, for days; goes on where it ended; build/check-all/index.html (SUITES=)"
	@echo "make check-oom     requests for memory, a descriptor, a mapping, a thread, a write fail, one in each run (also under ASan; ALL=1: each)"
	@echo "make check-abi     a program that was built for 0.1 runs with this library, and no symbol is lost"
	@echo "make check-arm     the reduction kernels for 64-bit Arm, on a processor that qemu emulates"
	@echo "make check-generate 1,000 generated tokens in many layouts: the trainer's log-probabilities, to the bit"
	@echo "make check-tokenizers 40,000 strings with each of 53 tokenizers: the ids of the libraries they are from (STRINGS=N ONLY=WORD)"
	@echo "make check-reshard training saved in one layout and gone on with in another, 25 pairs: the same bits (ONLY=WORD: some of them)"
	@echo "make check-launch  every launcher over several hosts on this machine, and what ucx-run promises (root; ONLY=WORD: a part)"
	@echo "make check-mpi     packaged MPI programs and mpi4py's test suite with gyre-mpi and without (ONLY=WORD RANKS= TIMES=N)"
	@echo "make check-verbs   the verbs transport, and UCX over RDMA, on Soft-RoCE in virtual machines (PARTS=\"unit one\", some of it)"
	@echo "make check-fresh   SUITE=bookworm|trixie: the README's two commands, and a user's build, on a fresh Debian in a folder (root)"
	@echo "make lint          clang-tidy, cppcheck and shellcheck over what changed since they last ran; lint-quick:"
	@echo "                   clang-tidy alone, without its analyzer, as make check does"
	@echo "make coverage      build/coverage/html/index.html: lines that unit tests, programs of several ranks and corpora run; modules,"
	@echo "                   parsers and the errors of public calls against their goals (ONLY=WORD: some tests, no goals)"
	@echo "make compile_commands.json           for clangd and other tools that read C"
	@echo "make bench         the whole suite of gyre-perf in under five minutes; one page of plots, build/bench/index.html"
	@echo "                   (RANKS=\"2 4\" ONLY=\"latency init\", a few of its sections; QUICK=1: in seconds)"
	@echo "make bench-peers   Gyre beside Open MPI, MPICH, Gloo and UCC (RANKS=\"2 4 8 32 64\" COLLECTIVES= SIZES= COLD=\"64K\" BUFFERS="
	@echo "                   CONTENDERS= ROUNDS= TIME= DEADLINE= GIVE_UP= LIMITS=0), in the same run: tables, JSON and a page of plots"
	@echo "                   in bench/results/DATE-MACHINE/, or in OUT="
	@echo "make readme-results  the README's plot and table from RESULTS=bench/results/DATE"
	@echo "make bench-train   a training step beside plain C loops and PyTorch, in turns (ROUNDS=N SHAPE=demo|124M BF16=1, both)"
	@echo "make bench-generate  what the trainer's bits cost gyre-generate: --order canonical and fast, in turns (ROUNDS=N SHAPE=tiny)"
	@echo "make bench-waiters what ranks that wait cost one that computes (RANKS=N)"
	@echo "make bench-instructions  instructions of a small call, counted by valgrind (RANKS=N BYTES=N COLLECTIVES=)"
	@echo "make format        lays the sources out with clang-format"
	@echo "make words         checks the words of documents, manual pages, help and error texts"
	@echo "make install       to PREFIX ($(PREFIX)), below DESTDIR if given; make uninstall takes it away again"
	@echo "make lib           libgyre alone, which needs hwloc, UCX, libsodium and xxHash; make install-lib installs it,"
	@echo "                   make install-train that and libgyre-train (gyre/train.h)"
	@echo "make mpi           libgyre-mpi and gyre-mpi, for MPI programs (docs/mpi.md); part of make where an MPI is"
	@echo "                   installed; MPICC_openmpi= and MPICC_mpich= name other compilers of MPI"
	@echo "make wheel         build/python/dist/: the Python package gyre (docs/python.md); make bench-python times its calls"
	@echo "make torch         build/python/: the backend gyre of PyTorch (docs/pytorch.md); make wheel-torch: as a wheel in build/torch/dist/;"
	@echo "                   make check-torch: with the newest PyTorch of PyPI, in a virtual environment (network, TORCH=VERSION);"
	@echo "                   make bench-torch: next to Gloo (RANKS=N ROUNDS=N SECONDS=N MAX_BYTES=N)"
	@echo "make install-fortran  make install-lib, and the module gyre for Fortran (docs/fortran.md)"
	@echo "make dist          build/dist/: the last commit as a tarball, the same bytes each time (docs/packages.md)"
	@echo "make deb           build/deb/: Debian packages of it; make check-deb installs, tests and purges them in a clean root (root)"
	@echo "make tools, tests, examples          parts of the build"
	@echo "make clean         removes build/"
	@echo
	@echo "CUDA=0|1 VERBS=0|1 SENTENCEPIECE=0|1    without or with that part (default: what the machine has)"
	@echo "SANITIZE=address|thread|undefined    an instrumented build under build/<name>/"
	@echo "WERROR=0|1                  warnings are errors (default: with compilers that we know)"
	@echo "B=DIR                       build there;  V=1  show the commands;  CC=, CFLAGS=, LDFLAGS=, OPT="

# Not by the name $(MAKE), which `make -n` would run.
check: $(SETUP_CHECK_STAMP)
	@MAKE='$(MAKE_COMMAND)' /usr/bin/python3 tools/run-tests
check-quick: $(SETUP_CHECK_STAMP)
	@MAKE='$(MAKE_COMMAND)' /usr/bin/python3 tools/run-tests --quick
check-bindings: $(SETUP_CHECK_STAMP)
	@MAKE='$(MAKE_COMMAND)' /usr/bin/python3 tools/run-tests system emulated -k bindings/
check-long: $(SETUP_CHECK_STAMP)
	@MAKE='$(MAKE_COMMAND)' TEST_LONG=1 /usr/bin/python3 tools/run-tests
# What tools/run-tests asks: the sources of tests that this build leaves out, and those that clang-format looks at.
left-out:
	@echo $(filter-out $(TEST_SRC) $(MP_SRC) $(FUZZ_SRC),$(wildcard $(foreach d,tests/* tests/*/*,$(d)/test_*.c $(d)/mp_*.c $(d)/fuzz_*.c)))
formatted:
	@echo $(FORMATTED)

check-hosts: all $(B)/tests/hosts/rank $(SETUP_HOSTS_STAMP)
	@B='$(B)' /usr/bin/python3 tests/hosts/check $(ONLY)
$(B)/tests/hosts/rank: $(call obj,tests/hosts/rank.c)
$(B)/tests/faults/rank: $(call obj,tests/faults/rank.c)
$(B)/tests/hosts/rank $(B)/tests/faults/rank: $(LIB_A)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $(filter-out $(LIB_A),$^) $(LIB_A) $(LIBS) -o $@

# Faults at random: tests/faults/check says what these variables do.
check-faults: $(B)/tests/faults/rank $(B)/tests/faults/clock.so $(SETUP_HOSTS_STAMP)
	@B='$(B)' ROUNDS='$(ROUNDS)' LANES='$(LANES)' SEED='$(SEED)' ROUND='$(ROUND)' FIRST='$(FIRST)' FAULTS='$(FAULTS)' LOGS='$(LOGS)' \
	    /usr/bin/python3 tests/faults/check
$(B)/tests/faults/clock.so: tests/faults/clock.c
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -fPIC -shared $< -o $@

check-all:
	@/usr/bin/python3 tools/check-all $(SUITES)

check-fuzz: $(SETUP_CHECK_STAMP)
	@MAKE='$(MAKE_COMMAND)' /usr/bin/python3 tools/run-tests fuzz $(if $(ONLY),-k '$(ONLY)')

check-arm: $(SETUP_ARM_STAMP)
	@B='$(B)' bash tests/arm/check

check-mpi: lib mpi $(SETUP_MPI_STAMP)
	@B='$(B)' bash tests/mpi/check $(if $(ONLY),-k '$(ONLY)')

check-launch: all $(SETUP_LAUNCH_STAMP)
	@B='$(B)' bash tests/launch/check $(if $(ONLY),-k '$(ONLY)')

# The promises of docs/contributing/: a toy of each kind, by its patch.
check-contributing: $(SETUP_CHECK_STAMP)
	@MAKE='$(MAKE_COMMAND)' /usr/bin/python3 tests/contributing/check $(ONLY)

# ASan finds the memory that a failure leaves. tests/failing.
check-oom: $(B)/tests/failing/test_failing
	+@$(MAKE) SANITIZE=address $(B)/address/tests/failing/test_failing
	@export LANES='$(LANES)' ONLY='$(ONLY)' ALL='$(ALL)'; all=0; tests/failing/check $(B) || all=1; \
	    tests/failing/check $(B)/address || all=1; exit $$all

# A program of an older release with this library: tests/abi.
check-abi: lib tools
	@B='$(B)' bash tests/tools/test_abi.sh

# tokenizers against the libraries they are from, on many strings
check-tokenizers: all
	@sh tools/setup references
	@TOKENIZER_STRINGS=$(or $(STRINGS),40000) B='$(B)' build/venv/bin/python tests/model/text/tokenizer_kinds_compare.py

check-generate: all $(B)/tests/model/mp_generate_bits
	@B='$(B)' TEST_LONG=1 bash tests/model/generate_bits.sh

check-reshard: all
	@B='$(B)' TEST_LONG=1 ONLY='$(ONLY)' bash tests/optim/reshard.sh

check-recipes: all $(SETUP_PYTHON_STAMP)
	@B='$(B)' /usr/bin/python3 tests/layouts/recipes $(if $(ONLY),-k '$(ONLY)')

check-plan: $(B)/bin/gyre-plan
	@B='$(B)' OPENBLAS_NUM_THREADS=1 /usr/bin/python3 tests/plan/check --bounds

check-layouts: all $(SETUP_PYTHON_STAMP)
	@B='$(B)' /usr/bin/python3 tests/layouts/check $(if $(ONLY),-k '$(ONLY)')

# RDMA in virtual machines: docs/labs.md. PARTS="unit one two ..." runs some of it.
# Device memory is the emulator's.
check-verbs: tools tests $(B)/tests/faults/rank $(B)/tests/faults/clock.so $(SETUP_VERBS_STAMP) \
    $(if $(filter 1x86_64,$(CUDA)$(SANITIZE)$(findstring x86_64,$(MACHINE))),$(E)/tests/gpu/ranks/mp_direct)
	@B='$(B)' bash tests/verbs/check $(PARTS)

# Without a GPU it compiles no CUDA, unless asked to; what it compiles is that of the whole build.
ifeq ($(origin CUDA)$(CUDA)$(wildcard /dev/nvidiactl),file1)
demo:
	+@$(MAKE) B='$(B)/no-gpu' SHARE='$(B)' CUDA=0 NO_CUDA='there is no GPU' all
	@B='$(B)/no-gpu' OUT='$(B)/demo' DATA='$(DATA)' bash tools/demo
else
demo: all
	@B='$(B)' OUT='$(B)/demo' DATA='$(DATA)' bash tools/demo
endif

include bench/rules.mk
include tools/package/rules.mk
include tools/install.mk

# ---- set-up --------------------------------------------------------------------------------------------
$(SETUP_STAMP): tools/setup
	@mkdir -p $(@D)
	@sh tools/setup build '$(S)'
	@touch $@

# Where more than libgyre is built one look finds all that is missing.
ifdef LIB_ALONE
$(SETUP_LIB_STAMP): tools/setup
	@mkdir -p $(@D)
	@sh tools/setup lib '$(S)'
	@touch $@
else
$(SETUP_LIB_STAMP): $(SETUP_STAMP)
	@touch $@
endif

$(SETUP_CHECK_STAMP): tools/setup
	@mkdir -p $(@D)
	@sh tools/setup check '$(S)'
	@touch $@ $(SETUP_STAMP)

# The other modes of tools/setup: each has its stamp build/setup-MODE.done.
$(SETUP_FUZZ_STAMP) $(SETUP_PYTHON_STAMP) $(SETUP_HOSTS_STAMP) $(SETUP_LAUNCH_STAMP) $(SETUP_VERBS_STAMP) $(SETUP_PEERS_STAMP) $(SETUP_BUNDLE_STAMP) $(SETUP_LINT_STAMP) $(SETUP_COVERAGE_STAMP) $(SETUP_ARM_STAMP) $(SETUP_MPI_STAMP): \
$(S)/setup-%.done: tools/setup
	@mkdir -p $(@D)
	@sh tools/setup $* '$(S)'
	@touch $@

# Written under another name first: half a file must not be read by the next make.
$(S)/config.mk: Makefile $(SETUP_LIB_STAMP)
	@sh tools/setup $(if $(LIB_ALONE),lib,build) '$(S)' # the stamp is older than what was removed since
	@$(CC) --version >/dev/null 2>&1 || { echo "make: the compiler CC='$(CC)' does not run; to install it: sudo apt-get install" \
	    "$(call package_of,$(lastword $(CC)))" >&2; exit 1; }
	@{ cflags=$$(pkg-config --cflags $(PKGS_CORE) $(PKGS_LOADED)) && libs=$$(pkg-config --libs $(PKGS_CORE)) && \
	  echo "CORE_CFLAGS := $$cflags" && echo "CORE_LIBS := $$libs" && \
	  if $(CC) --version | grep -q clang; then name=clang; else name=gcc; fi && \
	  echo 'CONFIG_CC := $(CC)' && echo "MACHINE := $$($(CC) -dumpmachine)" && \
	  echo "COMPILER := $$name-$$($(CC) -dumpversion | cut -d. -f1)"; } > $@.new && mv $@.new $@

$(S)/config-tools.mk: $(S)/config.mk
	@{ cflags=$$(pkg-config --cflags $(PKGS_JSON)) && json=$$(pkg-config --libs $(PKGS_JSON)) && \
	  train=$$(pkg-config --libs $(PKGS_TRAIN)) && \
	  echo "TOOLS_CFLAGS := $$cflags" && echo "JSON_LIBS := $$json" && echo "TRAIN_LIBS := $$train"; \
	} > $@.new && mv $@.new $@

clean:
	$(if $(filter build,$(S)),,$(error make clean removes build/ alone; for this one: rm -r '$(B)'))
	rm -rf build

.SECONDARY:
-include $(shell find $(sort $(B)/obj $(SHARE)/obj) $(E)/obj $(if $(SANITIZE),$(S)/obj) $(if $(findstring fuzz,$(MAKECMDGOALS)),$(FUZZ_DIR)/obj) -name '*.d' 2>/dev/null)
