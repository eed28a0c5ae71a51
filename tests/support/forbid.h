/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/forbid.h: a seccomp filter, as a container may have, under which some system calls fail with
 * EPERM. The kernel keeps it for this process and all that it starts. */
#ifndef TESTS_SUPPORT_FORBID_H
#define TESTS_SUPPORT_FORBID_H

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const struct {
    const char *name;
    unsigned number;
} forbid_known[] = {
    {"memfd_create", SYS_memfd_create},
    {"membarrier", SYS_membarrier},
    {"process_vm_readv", SYS_process_vm_readv},
    {"process_vm_writev", SYS_process_vm_writev},
    {"ptrace", SYS_ptrace},
};
enum { FORBID_KNOWN = sizeof forbid_known / sizeof *forbid_known };

/* 0, or -1 with errno: EINVAL: such a name is not in the table. The process gets no new privileges either. */
static inline int forbid(char *const *names, int n)
{
    /* load the number; for each call: if it is this one, the next instruction answers; the last one allows */
    struct sock_filter code[2 * FORBID_KNOWN + 2];
    unsigned short at = 0;
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < FORBID_KNOWN && strcmp(forbid_known[k].name, names[i]) != 0)
            k++;
        if (k == FORBID_KNOWN || at + 3 > (int)(sizeof code / sizeof *code)) {
            errno = EINVAL;
            return -1;
        }
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, forbid_known[k].number, 0, 1);
        code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog program = {at, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1ul, 0ul, 0ul, 0ul) != 0)
        return -1;
    return prctl(PR_SET_SECCOMP, (unsigned long)SECCOMP_MODE_FILTER, &program, 0ul, 0ul);
}

#endif
