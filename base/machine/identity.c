/* SPDX-License-Identifier: Apache-2.0 */
/* base/machine/identity.c: the kernel's boot id and namespaces. See identity.h. */
#include "base/machine/identity.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"

void base_machine_boot(char text[BASE_BOOT_BYTES])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, BASE_BOOT_BYTES - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

uint64_t base_machine(unsigned spaces)
{
    static const char *const paths[] = {"/proc/self/ns/net", "/proc/self/ns/pid"};
    struct {
        char boot[BASE_BOOT_BYTES];
        uint64_t device[2], inode[2];
    } all;
    memset(&all, 0, sizeof(all));
    base_machine_boot(all.boot);
    if (all.boot[0] == '\0')
        return 0;
    for (unsigned i = 0; i < 2; i++) {
        struct stat file;
        if ((spaces >> i & 1u) == 0)
            continue;
        if (stat(paths[i], &file) != 0)
            return 0;
        all.device[i] = file.st_dev;
        all.inode[i] = file.st_ino;
    }
    return base_hash64(&all, sizeof(all), 0) | 1;
}
