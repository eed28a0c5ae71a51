/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_machine.c: processes see the same machine exactly if they share the namespaces
 * that it is asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/machine/identity.h"

enum { CANNOT = 77 };

/* What `body` says in a child, in network and user namespaces of its own if `apart`. */
static int in_child(int apart, int (*body)(const uint64_t *), const uint64_t *ids)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(apart && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 ? CANNOT : body(ids));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Bit i: the identity by spaces i is that of the parent. */
static int which_are_equal(const uint64_t *ids)
{
    int equal = 0;
    for (unsigned spaces = 0; spaces < 4; spaces++)
        equal |= (base_machine(spaces) == ids[spaces]) << spaces;
    return equal;
}

static void namespaces_tell_processes_apart(void **state)
{
    uint64_t ids[4];
    (void)state;
    for (unsigned spaces = 0; spaces < 4; spaces++) {
        ids[spaces] = base_machine(spaces);
        assert_int_not_equal(ids[spaces], 0);
        for (unsigned other = 0; other < spaces; other++)
            assert_int_not_equal(ids[spaces], ids[other]);
    }
    assert_int_equal(in_child(0, which_are_equal, ids), 0xF);
    const int apart = in_child(1, which_are_equal, ids);
    if (apart == CANNOT) {
        print_message("namespaces cannot be made here\n");
        skip();
    }
    assert_int_equal(apart, 1 << 0 | 1 << BASE_MACHINE_PID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(namespaces_tell_processes_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
