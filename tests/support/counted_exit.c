/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/counted_exit.c: in a build with gcov's counters, a process that a test ends by _exit() writes
 * its counters first; the linker sends the tests' calls of _exit here. In other builds this is not called. */

__attribute__((weak)) void __gcov_dump(void);
__attribute__((weak)) void __real__exit(int status);
void __wrap__exit(int status);

void __wrap__exit(int status)
{
    if (__gcov_dump)
        __gcov_dump();
    if (__real__exit)
        __real__exit(status);
    __builtin_trap();
}
