/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/report/tensorboard.h: event files for TensorBoard, written by rank 0. */
#ifndef PIPELINE_REPORT_TENSORBOARD_H
#define PIPELINE_REPORT_TENSORBOARD_H

#include "pipeline/report/record.h"

/* Makes the folder if it is not there; no file yet. IO, NO_MEMORY. */
gyre_status_t train_board_open(const char *folder, train_board_t **out);
/* Begins a new file of events, for a run that goes on after `step`. IO. Readers forget what older files of
 * the folder say of later steps. */
gyre_status_t train_board_start(train_board_t *board, uint64_t step);
/* record: for memory and tokens per step. IO. */
gyre_status_t train_board_step(train_board_t *board, const train_record_t *record, const train_step_t *step);
/* The validation loss of `step` alone, and those of the record's sets. IO. */
gyre_status_t train_board_validation(train_board_t *board, const train_record_t *record, uint64_t step,
                                     double val);
/* Frees it; NULL is allowed. IO. */
gyre_status_t train_board_close(train_board_t *board);

#endif
