/* SPDX-License-Identifier: Apache-2.0 */
/* tests/pipeline/test_choices.c: which choice counts as chosen, by hand-made scores. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pipeline/evaluate/choices.h"

/* Three questions whose answer is the second choice, with scores such that it is chosen in some ways only. */
static void test_ways(void **state)
{
    (void)state;
    char *plain[] = {"ab", "abcd"};    /* 2 and 4 characters */
    char *wide[] = {"ab", "\xc3\xa4"}; /* 2 and 1 characters, 2 bytes each */
    pipe_question_t question[] = {{.choice = plain, .choices = 2, .answer = 1},
                                  {.choice = wide, .choices = 2, .answer = 1},
                                  {.choice = plain, .choices = 2, .answer = 1}};
    const pipe_questions_t questions = {.question = question, .count = 3};
    const double score[] = {-3, -4,  /* the sum is less, a character's part is more */
                            -3, -2,  /* a character's part is less, the sum and a byte's part are more */
                            -2, -2}; /* of equals the first; a part is more */
    size_t right[PIPE_ACCS];
    pipe_choices_count(&questions, score, right);
    assert_int_equal(right[PIPE_ACC], 1);
    assert_int_equal(right[PIPE_ACC_NORM], 2);
    assert_int_equal(right[PIPE_ACC_BYTES], 3);
    assert_int_equal(pipe_choice_characters(wide[1]), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ways)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
