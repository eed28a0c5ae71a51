# SPDX-License-Identifier: Apache-2.0
# bindings/fortran/rules.mk: libgyre-fortran.a, gyre.mod and `make install-fortran`. Included by the Makefile.
FORTRAN_C := $(wildcard bindings/fortran/*.c)
FOREIGN_C += $(FORTRAN_C)
ifeq ($(filter environment command,$(origin FC)),)
FC := gfortran
endif
LIB_FORTRAN := $(B)/lib/libgyre-fortran.a
FFLAGS_GYRE := -std=f2018 -O2 -g1 -Wall -Wextra -fPIC
HAVE_FORTRAN := $(if $(shell command -v $(FC) 2>/dev/null),1)

$(B)/obj/bindings/fortran/gyre.o: bindings/fortran/gyre.f90
	@mkdir -p $(@D)
	@echo "  FC    $<"
	$(Q)$(FC) $(FFLAGS_GYRE) -J$(@D) -c $< -o $@
$(LIB_FORTRAN): $(call obj,$(FORTRAN_C)) $(B)/obj/bindings/fortran/gyre.o
	@mkdir -p $(@D)
	@echo "  AR    $@"
	$(Q)rm -f $@ && ar rcs $@ $^

# $(L): the folder of libraries, of tools/install.mk
FORTRAN_PC = 'prefix=$(PREFIX)' 'libdir=$${prefix}/$(L)' 'includedir=$${prefix}/include' '' \
    'Name: gyre-fortran' \
    'Description: module gyre, collectives for Fortran' 'Version: $(VERSION)' 'Requires: gyre' \
    'Cflags: -I$${includedir}/gyre' 'Libs: -L$${libdir} -lgyre-fortran'
FORTRAN_INSTALLED = $(L)/libgyre-fortran.a $(L)/pkgconfig/gyre-fortran.pc include/gyre/gyre.mod
.PHONY: fortran install-fortran
fortran: $(LIB_FORTRAN)
install-fortran: install-lib $(if $(HAVE_FORTRAN),$(LIB_FORTRAN))
ifeq ($(HAVE_FORTRAN),)
	@echo "install-fortran: no Fortran compiler '$(FC)'; to install it: sudo apt-get install gfortran" >&2
	@exit 1
else
	$(I) install -m 644 $(LIB_FORTRAN) '$(TO)'/$(L)/
	$(I) install -m 644 $(B)/obj/bindings/fortran/gyre.mod '$(TO)'/include/gyre/
	$(I) printf '%s\n' $(FORTRAN_PC) > '$(TO)'/$(L)/pkgconfig/gyre-fortran.pc
endif
