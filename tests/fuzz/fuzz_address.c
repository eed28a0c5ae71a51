/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_address.c: "host:port" texts and packed addresses. */
#include "comm/net/address.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), host[256];
    int port = 0;
    if (boot_root_split(text, host, &port)) {
        FUZZ_CHECK(port >= 1 && port <= 65535 && strlen(host) > 0);
        (void)boot_host_is_loopback(host);
    }
    free(text);
    if (size >= BOOT_ADDR_BYTES) {
        boot_addr_t addr;
        char shown[BOOT_ADDR_TEXT];
        unsigned char again[BOOT_ADDR_BYTES];
        if (boot_addr_unpack(data, &addr)) {
            boot_addr_text(&addr, shown);
            boot_addr_pack(&addr, again);
            FUZZ_CHECK(again[0] == data[0] && again[2] == data[2] && again[3] == data[3]);
            (void)boot_addr_is_loopback(&addr);
        }
    }
    return 0;
}
