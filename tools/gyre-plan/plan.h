/* tools/gyre-plan/plan.h: what the parts of gyre-plan share. */
#ifndef GYRE_PLAN_H
#define GYRE_PLAN_H

enum { PLAN_OK = 0, PLAN_FAILED = 1, PLAN_USAGE = 2 };

/* `gyre-plan schedule`; argv[0] is the subcommand. Returns the exit status. */
int plan_schedule(int argc, char **argv);

#endif
