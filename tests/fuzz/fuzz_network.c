/* SPDX-License-Identifier: Apache-2.0 */
/* tests/fuzz/fuzz_network.c: networks from JSON files, and their routes. */
#include "topo/network/network.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    topo_network_t *network = NULL;
    if (topo_network_open(fuzz_file(data, size), 2, 0, &network) != GYRE_OK)
        return 0;
    uint32_t *links = calloc(network->most_hops, sizeof(*links));
    FUZZ_CHECK(links != NULL);
    for (int r = 0; r < network->ranks; r++) {
        char name[256];
        uint32_t n = topo_network_route(network, r, (r + 1) % network->ranks, links);
        FUZZ_CHECK(n <= network->most_hops);
        for (uint32_t i = 0; i < n; i++)
            FUZZ_CHECK(links[i] < network->nlinks &&
                       topo_network_link_name(network, links[i], name, sizeof(name)) == name);
    }
    free(links);
    topo_network_free(network);
    return 0;
}
