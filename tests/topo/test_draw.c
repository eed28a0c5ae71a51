/* SPDX-License-Identifier: Apache-2.0 */
/* tests/topo/test_draw.c: what is printed and drawn names every core, device and rank, and is well formed. */
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "fixture.h"
#include "topo/drawing/drawing.h"

static char *read_all(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static int occurrences(const char *text, const char *what)
{
    int count = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        count++;
    return count;
}

static char *printed(const topo_t *topo, int ranks)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    topo_print(topo, out);
    if (ranks > 0)
        assert_int_equal(topo_print_ranks(topo, ranks, out), GYRE_OK);
    fclose(out);
    return text;
}

static void print_names_all(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("gpu-8.xml");
    char *text = printed(topo, 8);
    assert_non_null(strstr(text, "2 packages, 4 NUMA nodes, 48 cores, 48 PUs, 1 TiB"));
    assert_non_null(strstr(text, "cores 36-47"));
    assert_non_null(strstr(text, "nearest nic mlx5_7"));
    assert_non_null(strstr(text, "ring: 0 1 2 3 4 5 6 7\n  2 of its 8 links leave a package, 4 a NUMA node"));
    free(text);
    assert_int_equal(topo_print_ranks(topo, 0, stdout), GYRE_ERR_INVALID);
    topo_free(topo);
    topo = load_fixture("one-core.xml");
    text = printed(topo, 3);
    assert_non_null(strstr(text, "3 ranks would share 1 core\n"));
    assert_non_null(strstr(text, "no GPUs or network devices"));
    free(text);
    topo_free(topo);
    /* packages with a second kind of memory */
    assert_int_equal(setenv("HWLOC_SYNTHETIC", "pack:2 [numa] [numa] core:2 pu:1", 1), 0);
    assert_int_equal(topo_load(NULL, &topo), GYRE_OK);
    unsetenv("HWLOC_SYNTHETIC");
    text = printed(topo, 0);
    assert_non_null(strstr(text, "2 packages, 4 NUMA nodes, 4 cores"));
    assert_non_null(
        strstr(text, "\nnuma 1  0 B, near the cores of numa 0\nnuma 3  0 B, near the cores of numa 2\n"));
    assert_int_equal(occurrences(text, "numa 0"), 2);
    free(text);
    topo_free(topo);
    /* a virtual machine that does not say which packages it has */
    assert_int_equal(setenv("HWLOC_SYNTHETIC", "numa:1 core:2 pu:1", 1), 0);
    assert_int_equal(topo_load(NULL, &topo), GYRE_OK);
    unsetenv("HWLOC_SYNTHETIC");
    text = printed(topo, 2);
    assert_non_null(strstr(text, "    1      1        -      0          0"));
    assert_null(strstr(text, " -1"));
    free(text);
    topo_free(topo);
}

static char *drawn(const topo_t *topo, int ranks)
{
    char path[] = "/tmp/gyre-topo-test-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(topo_svg(topo, ranks, path), GYRE_OK);
    char *text = read_all(path);
    unlink(path);
    return text;
}

static void svg_shows_all(void **state)
{
    (void)state;
    topo_t *topo = load_fixture("gpu-8.xml");
    char *text = drawn(topo, 8);
    assert_ptr_equal(strstr(text, "<svg "), text);
    assert_non_null(strstr(text, "</svg>\n"));
    assert_int_equal(occurrences(text, "class=\"k\""), 48);       /* cores */
    assert_int_equal(occurrences(text, "class=\"g\""), 8);        /* GPUs */
    assert_int_equal(occurrences(text, "class=\"w\""), 9);        /* NICs */
    assert_int_equal(occurrences(text, ">switch "), 8);           /* PCIe switches */
    assert_int_equal(occurrences(text, "class=\"ring\""), 8);     /* links of the ring */
    assert_int_equal(occurrences(text, "class=\"edge\""), 2 * 7); /* of the trees */
    assert_int_equal(occurrences(text, "<circle "), 3 * 8);       /* ranks in ring and trees */
    assert_int_equal(occurrences(text, "nan") + occurrences(text, "inf"), 0);
    free(text);
    topo_free(topo);
}

static void svg_without_room(void **state)
{
    (void)state;
    static const int ranks[] = {0, 1, 2, 300};
    topo_t *topo = load_fixture("one-core.xml");
    for (int i = 0; i < 4; i++) {
        char *text = drawn(topo, ranks[i]);
        assert_int_equal(occurrences(text, "<circle "), 3 * ranks[i]);
        assert_int_equal(occurrences(text, "nan") + occurrences(text, "inf"), 0);
        free(text);
    }
    assert_int_equal(topo_svg(topo, -1, "/tmp/never"), GYRE_ERR_INVALID);
    assert_int_equal(topo_svg(topo, 1, NULL), GYRE_ERR_INVALID);
    assert_int_equal(topo_svg(topo, 1, "/nonexistent/folder/a.svg"), GYRE_ERR_IO);
    assert_non_null(strstr(gyre_last_error(), "/nonexistent/folder/a.svg"));
    if (access("/dev/full", W_OK) == 0)
        assert_int_equal(topo_svg(topo, 1, "/dev/full"), GYRE_ERR_IO);
    topo_free(topo);
}

/* A name from a file is text, whatever is in it. */
static void names_are_escaped(void **state)
{
    (void)state;
    char source[512], path[] = "/tmp/gyre-topo-test-XXXXXX";
    char *xml = read_all(fixture_path("gpu-8.xml", source, sizeof source)),
         *at = strstr(xml, "name=\"eth0\"");
    assert_non_null(at);
    int file = mkstemp(path);
    FILE *out = fdopen(file, "w");
    assert_non_null(out);
    fwrite(xml, 1, (size_t)(at - xml), out);
    fprintf(out, "name=\"&lt;b&gt;&amp;\"%s", at + strlen("name=\"eth0\""));
    fclose(out);
    free(xml);
    topo_t *topo = NULL;
    assert_int_equal(topo_load(path, &topo), GYRE_OK);
    unlink(path);
    char *text = drawn(topo, 0);
    assert_null(strstr(text, "<b>"));
    assert_non_null(strstr(text, "&lt;b&gt;&amp;"));
    free(text);
    topo_free(topo);
}

int main(void)
{
    base_log_set_level(BASE_LOG_NONE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(print_names_all),
        cmocka_unit_test(svg_shows_all),
        cmocka_unit_test(svg_without_room),
        cmocka_unit_test(names_are_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
