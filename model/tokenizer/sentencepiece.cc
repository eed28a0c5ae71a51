/* SPDX-License-Identifier: Apache-2.0 */
/* model/tokenizer/sentencepiece.cc: SentencePiece's library under C calls. Exceptions end here: the library
 * itself returns statuses, and what it allocates may throw std::bad_alloc. */
#include "model/tokenizer/sentencepiece.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include <sentencepiece_processor.h>

extern "C" {
#include "base/error.h"
}

struct tokenizer_library {
    sentencepiece::SentencePieceProcessor processor;
    std::string model;
    /* The same without a space in front of a text, made when it is first asked for. */
    sentencepiece::SentencePieceProcessor inner;
    std::once_flag once;
    gyre_status_t inner_status;
};

namespace
{

gyre_status_t no_memory()
{
    return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for SentencePiece");
}

gyre_status_t load(const char *path, const std::string &model,
                   sentencepiece::SentencePieceProcessor *processor)
{
    const auto status = processor->LoadFromSerializedProto(model);
    if (!status.ok())
        return gyre_fail(GYRE_ERR_FORMAT, "%s is not a model of SentencePiece: %s", path,
                         status.ToString().c_str());
    return GYRE_OK;
}

/* Protocol buffers that follow one another are one message, of which the last values count: here
 * normalizer_spec { add_dummy_prefix: false }. */
gyre_status_t load_inner(tokenizer_library *library)
{
    std::call_once(library->once, [library] {
        library->model.append("\x1a\x02\x18\x00", 4);
        library->inner_status = load("a model without add_dummy_prefix", library->model, &library->inner);
        library->model = std::string();
    });
    return library->inner_status;
}

} // namespace

gyre_status_t tokenizer_library_open(const char *path, const void *model, size_t bytes,
                                     tokenizer_library_t **out)
{
    tokenizer_library *library = nullptr;
    gyre_status_t status = GYRE_OK;
    try {
        library = new tokenizer_library;
        library->model.assign(static_cast<const char *>(model), bytes);
        status = load(path, library->model, &library->processor);
    } catch (const std::bad_alloc &) {
        status = no_memory();
    }
    if (status != GYRE_OK) {
        delete library;
        return status;
    }
    *out = library;
    return GYRE_OK;
}

void tokenizer_library_close(tokenizer_library_t *library)
{
    delete library;
}

int tokenizer_library_size(const tokenizer_library_t *library)
{
    return library->processor.GetPieceSize();
}

int tokenizer_library_end(const tokenizer_library_t *library)
{
    return library->processor.eos_id();
}

int tokenizer_library_begin(const tokenizer_library_t *library)
{
    return library->processor.bos_id();
}

const char *tokenizer_library_piece(const tokenizer_library_t *library, int id, size_t *bytes)
{
    const std::string &piece = library->processor.IdToPiece(id);
    *bytes = piece.size();
    return piece.data();
}

tokenizer_library_kind_t tokenizer_library_kind(const tokenizer_library_t *library, int id)
{
    const auto &processor = library->processor;
    return processor.IsControl(id)   ? LIBRARY_CONTROL
           : processor.IsUnknown(id) ? LIBRARY_UNKNOWN
           : processor.IsByte(id)    ? LIBRARY_BYTE
                                     : LIBRARY_NORMAL;
}

gyre_status_t tokenizer_library_encode(tokenizer_library_t *library, int goes_on, const void *text,
                                       size_t bytes, int32_t **ids, size_t *count)
{
    try {
        std::vector<int> made;
        const gyre_status_t ready = goes_on ? load_inner(library) : GYRE_OK;
        if (ready != GYRE_OK)
            return ready;
        const auto &processor = goes_on ? library->inner : library->processor;
        const auto status = processor.Encode({static_cast<const char *>(text), bytes}, &made);
        if (!status.ok())
            return gyre_fail(GYRE_ERR_INVALID, "SentencePiece cannot encode a text of %zu bytes: %s", bytes,
                             status.ToString().c_str());
        int32_t *copy = static_cast<int32_t *>(std::malloc((made.size() + 1) * sizeof *copy));
        if (!copy)
            return no_memory();
        for (size_t i = 0; i < made.size(); i++)
            copy[i] = made[i];
        *ids = copy;
        *count = made.size();
        return GYRE_OK;
    } catch (const std::bad_alloc &) {
        return no_memory();
    }
}

gyre_status_t tokenizer_library_decode(const tokenizer_library_t *library, const int32_t *ids, size_t count,
                                       unsigned char **text, size_t *bytes)
{
    try {
        std::string made;
        const auto status = library->processor.Decode(std::vector<int>(ids, ids + count), &made);
        if (!status.ok())
            return gyre_fail(GYRE_ERR_INVALID, "SentencePiece cannot decode %zu ids: %s", count,
                             status.ToString().c_str());
        unsigned char *copy = static_cast<unsigned char *>(std::malloc(made.size() + 1));
        if (!copy)
            return no_memory();
        std::memcpy(copy, made.c_str(), made.size() + 1);
        *text = copy;
        *bytes = made.size();
        return GYRE_OK;
    } catch (const std::bad_alloc &) {
        return no_memory();
    }
}
