/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_machine.c: processes see the same machine exactly if they share the namespaces
 * that it is asked for; and why tiles may not be used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/machine/identity.h"
#include "base/machine/tiles.h"

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

/* ---- tiles --------------------------------------------------------------------------------------------- */

/* Denies arch_prctl from here on. 0: cannot. */
static int deny_arch_prctl(void)
{
#if defined(__x86_64__)
    struct sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                   BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 1),
                                   BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                                   BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
#else
    return 0;
#endif
}

/* 1: the reason names what was denied, not the processor. */
static int names_denial(const uint64_t *ids)
{
    (void)ids;
    if (!deny_arch_prctl())
        return CANNOT;
    const char *why = base_tiles_missing();
    return why && strstr(why, "arch_prctl") && strstr(why, "is denied");
}

static void tiles_that_are_denied(void **state)
{
    (void)state;
    const char *why = base_tiles_missing();
    if (why) {
        assert_non_null(strstr(why, "bfloat16 tiles"));
        print_message("skipped: %s\n", why);
        skip();
    }
    const int named = in_child(0, names_denial, NULL);
    if (named == CANNOT) {
        print_message("system calls cannot be denied here\n");
        skip();
    }
    assert_int_equal(named, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(namespaces_tell_processes_apart),
                                       cmocka_unit_test(tiles_that_are_denied)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
