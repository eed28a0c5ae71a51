/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-plan/plan.h: what the parts of gyre-plan share. */
#ifndef TOOLS_GYRE_PLAN_H
#define TOOLS_GYRE_PLAN_H

enum { PLAN_OK = 0, PLAN_FAILED = 1, PLAN_USAGE = 2 };

/* `gyre-plan schedule`; argv[0] is the subcommand. Returns the exit status. */
int plan_schedule(int argc, char **argv);
/* `gyre-plan pipeline` */
int plan_pipeline(int argc, char **argv);
/* `gyre-plan memory`, `time`, `search` */
int plan_memory_question(int argc, char **argv);
int plan_time_question(int argc, char **argv);
int plan_search_question(int argc, char **argv);

#endif
