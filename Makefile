# Gyre's one Makefile. `make help` lists what can be asked of it.
#
#   make [CUDA=0|1] [VERBS=0|1] [SANITIZE=address|thread|undefined] [V=1]
#
# What the machine has is found by itself and reported in one line each. Everything made lies under $(B).

MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SUFFIXES:

VERSION  := 0.1.0
SOVERSION := 0
PREFIX   ?= /usr/local
DESTDIR  ?=
CC       ?= gcc
CLANG_FORMAT ?= clang-format
V        ?= 0
Q        := $(if $(filter 0,$(V)),@,)
SANITIZE ?=
B        := build$(if $(SANITIZE),/$(SANITIZE))

# ---- set-up: what must be installed -------------------------------------------------------------
PKGS_CORE  := hwloc ucx jansson libsodium libxxhash
PKGS_TRAIN := openblas
SETUP_STAMP := build/setup.done

# ---- what the machine has --------------------------------------------------------------------------
CUDA_HOME ?= $(firstword $(wildcard /usr/local/cuda /usr/lib/cuda))
HAVE_CUDA  := $(if $(wildcard $(CUDA_HOME)/include/cuda_runtime.h),1,0)
HAVE_VERBS := $(if $(wildcard /usr/include/infiniband/verbs.h),1,0)
CUDA  ?= $(HAVE_CUDA)
VERBS ?= $(HAVE_VERBS)

# ---- flags --------------------------------------------------------------------------------------------
OPT      ?= -O3 -g
WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror
CPPFLAGS := -D_GNU_SOURCE -I. -Iinclude -DGYRE_VERSION='"$(VERSION)"'
CFLAGS   ?=
ALL_CFLAGS := -std=c17 $(OPT) $(WARN) -fPIC -fvisibility=hidden -pthread -fno-math-errno -ffp-contract=off $(CFLAGS)
LDFLAGS  ?=
LIBS      = $(shell pkg-config --libs $(PKGS_CORE)) -ldl -lm -pthread
LIBS_TRAIN = $(shell pkg-config --libs $(PKGS_TRAIN))
CPPFLAGS  += $(shell pkg-config --cflags $(PKGS_CORE) 2>/dev/null)
ifeq ($(SANITIZE),address)
ALL_CFLAGS += -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -O1
else ifeq ($(SANITIZE),undefined)
ALL_CFLAGS += -fsanitize=undefined -fno-sanitize-recover=undefined -O1
else ifeq ($(SANITIZE),thread)
ALL_CFLAGS += -fsanitize=thread -O1
# UCX patches mmap and friends in every process that it is linked into, and libtsan then crashes when a thread
# starts (openucx/ucx issue 8475). Tests run by hand need the same variable.
export UCX_MEM_EVENTS := no
else ifneq ($(SANITIZE),)
$(error SANITIZE=$(SANITIZE) is not one of address, thread, undefined)
endif
ifeq ($(CUDA),1)
CPPFLAGS += -DGYRE_CUDA=1 -isystem $(CUDA_HOME)/include
LIBS += $(CUDA_HOME)/lib64/libcudart_static.a -lrt
endif
ifeq ($(VERBS),1)
CPPFLAGS += -DGYRE_VERBS=1
LIBS += -libverbs
endif

# files that are built for more than the compiler's baseline: only collectives/kernels.c calls them, after asking the CPU
ifneq ($(findstring x86_64,$(shell $(CC) -dumpmachine)),)
CFLAGS_kernels_avx2   := -mavx2 -mf16c
CFLAGS_kernels_avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mf16c -mprefer-vector-width=512
endif

# ---- sources: a room is a folder; everything in it is built ---------------------------------------------
CORE_ROOMS  := base topo comm collectives
TRAIN_ROOMS := model optim pipeline
CORE_SRC    := $(wildcard $(addsuffix /*.c,$(CORE_ROOMS)) comm/*/*.c)
TRAIN_SRC   := $(wildcard $(addsuffix /*.c,$(TRAIN_ROOMS)) model/*/*.c)
TOOL_SRC    := $(wildcard tools/*.c)
TEST_SRC    := $(wildcard tests/*/test_*.c)
MP_SRC      := $(wildcard tests/*/mp_*.c)
SUPPORT_SRC := $(wildcard tests/support/*.c)
EXAMPLE_SRC := $(wildcard examples/*.c)

obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
CORE_OBJ  := $(call obj,$(CORE_SRC))
TRAIN_OBJ := $(call obj,$(TRAIN_SRC))
TOOLS     := ucx-run gyre-perf gyre-topo gyre-plan gyre-train gyre-doctor
# a tool is tools/<name>.c plus the files of tools/<name>/, if any
TOOLS     := $(foreach t,$(TOOLS),$(if $(wildcard tools/$(t).c),$(t)))
TOOL_BINS := $(addprefix $(B)/bin/,$(TOOLS))
TESTS     := $(patsubst tests/%.c,$(B)/tests/%,$(TEST_SRC))
MP_TESTS  := $(patsubst tests/%.c,$(B)/tests/%,$(MP_SRC))
EXAMPLES  := $(patsubst examples/%.c,$(B)/examples/%,$(EXAMPLE_SRC))

LIB_SO := $(B)/lib/libgyre.so.$(SOVERSION)
LIB_A  := $(B)/lib/libgyre.a
LIB_TRAIN := $(B)/lib/libgyre-train.a

.PHONY: all lib tools tests examples report clean
all: report lib tools examples
lib: $(LIB_SO) $(LIB_A) $(LIB_TRAIN)
tools: $(TOOL_BINS)
tests: $(TESTS) $(MP_TESTS)
examples: $(EXAMPLES)

report:
	@echo "CUDA=$(CUDA)$(if $(filter 1,$(CUDA)), ($(CUDA_HOME)), (no toolkit found: GPU memory is off))"
	@echo "VERBS=$(VERBS)$(if $(filter 1,$(VERBS)), (libibverbs), (no rdma-core headers found))"
	@$(if $(SANITIZE),echo "SANITIZE=$(SANITIZE)",true)

$(B)/obj/%.o: %.c Makefile | $(SETUP_STAMP)
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CPPFLAGS) $(ALL_CFLAGS) $(CFLAGS_$(notdir $*)) -MMD -MP -c $< -o $@

$(LIB_SO): $(CORE_OBJ) libgyre.map
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) -shared -Wl,-soname,libgyre.so.$(SOVERSION) -Wl,--version-script=libgyre.map -Wl,-z,defs $(ALL_CFLAGS) $(LDFLAGS) $(CORE_OBJ) $(LIBS) -o $@
	$(Q)ln -sf libgyre.so.$(SOVERSION) $(B)/lib/libgyre.so

$(LIB_A): $(CORE_OBJ)
	@mkdir -p $(@D)
	@echo "  AR    $@"
	$(Q)rm -f $@ && ar rcs $@ $^

$(LIB_TRAIN): $(TRAIN_OBJ)
	@mkdir -p $(@D)
	@echo "  AR    $@"
	$(Q)rm -f $@ && ar rcs $@ $^

# Tools, tests and examples link the static library: they may look inside.
define TOOL_RULE
$(B)/bin/$(1): $(call obj,tools/$(1).c $(wildcard tools/$(1)/*.c)) $(LIB_TRAIN) $(LIB_A)
	@mkdir -p $$(@D)
	@echo "  LD    $$@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $$(filter %.o,$$^) $(LIB_TRAIN) $(LIB_A) $$(if $$(filter gyre-train,$(1)),$$(LIBS_TRAIN)) $$(LIBS) -o $$@
endef
$(foreach t,$(TOOLS),$(eval $(call TOOL_RULE,$(t))))

LINK_TEST = $(CC) $(ALL_CFLAGS) $(LDFLAGS) $(filter %.o,$^) $(LIB_TRAIN) $(LIB_A) $(if $(filter model optim pipeline,$(notdir $(@D))),$(LIBS_TRAIN)) $(LIBS) -lcmocka -o $@
$(B)/tests/%: $(B)/obj/tests/%.o $(call obj,$(SUPPORT_SRC)) $(LIB_TRAIN) $(LIB_A)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(LINK_TEST)

$(B)/examples/%: $(B)/obj/examples/%.o $(LIB_A)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $< $(LIB_A) $(LIBS) -o $@

# ---- set-up --------------------------------------------------------------------------------------------
$(SETUP_STAMP): $(wildcard tools/setup)
	@mkdir -p $(@D)
	@$(if $(wildcard tools/setup),sh tools/setup build,true)
	@touch $@

clean:
	rm -rf build

.SECONDARY:
-include $(shell find $(B)/obj -name '*.d' 2>/dev/null)
