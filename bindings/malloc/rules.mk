# SPDX-License-Identifier: Apache-2.0
# bindings/malloc/rules.mk: libgyre-malloc.so. Included by the Makefile.
# The compiler must not make calls of malloc's relatives out of others.
CFLAGS_bindings/malloc/malloc := -fno-builtin
$(B)/lib/libgyre-malloc.so: $(call obj,bindings/malloc/malloc.c)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) -shared -Wl,-soname,libgyre-malloc.so -Wl,-z,nodelete -Wl,-z,defs $(ALL_CFLAGS) $(LDFLAGS) $^ -ldl -pthread -o $@
