/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* Hugging Face's files that are wrong: damaged, incomplete, of another model, quantized. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "model/formats/hf.h"
#include "tests/model/hf_folder.h"

static void write_file(const char *name, const char *header, size_t data)
{
    char path[256];
    path_of(path, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    uint64_t length = strlen(header);
    assert_int_equal(fwrite(&length, sizeof length, 1, file), 1);
    assert_int_equal(fwrite(header, length, 1, file), 1);
    for (size_t i = 0; i < data; i++)
        fputc(0, file);
    assert_int_equal(fclose(file), 0);
}

static void refuse(gyre_status_t want, const char *say)
{
    static const model_config_t config = {
        .vocab = 3, .seq = 2, .layers = 1, .hidden = 2, .heads = 1, .leaves = 1};
    model_params_t *params = NULL;
    assert_int_equal(model_params_create(&config, &params), GYRE_OK);
    float *flat = calloc(params->total, sizeof *flat);
    assert_non_null(flat);
    assert_int_equal(model_hf_load(folder, params, flat), want);
    print_message("%s\n", gyre_last_error());
    assert_non_null(strstr(gyre_last_error(), say));
    free(flat);
    model_params_destroy(params);
    clear();
}

/* A quantization_config with tensors of `type`: refused with the method's name, or (NULL) left alone. */
static void quantized(const char *config, const char *type, const char *say)
{
    char text[700];
    model_config_t shape;
    snprintf(text, sizeof text,
             "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": 2, \"n_head\": 1, \"vocab_size\": 3, "
             "\"n_positions\": 2, \"quantization_config\": %s}",
             config);
    write_text("config.json", text);
    snprintf(text, sizeof text,
             "{\"h.0.attn.bias\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
             "\"ln_f.weight\":{\"dtype\":\"%s\",\"shape\":[4],\"data_offsets\":[4,%d]}}",
             type,
             type[1] == '3' || type[0] == 'I' ? 20
             : type[0] == 'B'                 ? 12
                                              : 8);
    write_file("model.safetensors", text, 20);
    assert_int_equal(model_hf_config(folder, 0, &shape), say ? GYRE_ERR_UNSUPPORTED : GYRE_OK);
    if (say) {
        print_message("%s\n", gyre_last_error());
        assert_non_null(strstr(gyre_last_error(), say));
        assert_non_null(strstr(gyre_last_error(), "load the unquantized folder"));
    }
    clear();
}

static void quantized_folders(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    quantized("{\"quant_method\": \"gptq\", \"bits\": 4}", "I32", "(GPTQ, 4 bits, by quantization_config");
    quantized("{\"quant_method\": \"awq\", \"bits\": 4}", "I32", "(AWQ, 4 bits,");
    quantized("{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true}", "U8", "(bitsandbytes, 4 bits,");
    quantized("{\"load_in_8bit\": true}", "U8", "(bitsandbytes, 8 bits,");
    quantized("{\"quant_method\": \"fp8\"}", "F8_E4M3", "(FP8, 8 bits,");
    quantized("{\"quant_method\": \"compressed-tensors\"}", "U8", "(compressed-tensors, by");
    quantized("{\"quant_method\": \"fp8\"}", "BF16", NULL); /* a copy in BF16 */
    quantized("{\"quant_method\": \"mxfp4\"}", "U8", NULL); /* the error names a tensor */
}

#define LNF "\"transformer.ln_f.weight\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"
static void wrong_files(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    refuse(GYRE_ERR_NOT_FOUND, "neither model.safetensors nor");
    write_file("model.safetensors", "{" LNF "}", 8);
    refuse(GYRE_ERR_FORMAT, "no tensor transformer.ln_f.bias");
    write_file("model.safetensors", "{" LNF "}", 7);
    refuse(GYRE_ERR_FORMAT, "is cut off: it has");
    write_file("model.safetensors",
               "{\"ln_f.weight\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8);
    refuse(GYRE_ERR_FORMAT, "has no type, no shape or no offsets");
    write_file("model-00001-of-00003.safetensors", "{" LNF "}", 8);
    write_file("model-00003-of-00003.safetensors", "{}", 0);
    refuse(GYRE_ERR_NOT_FOUND, "model.safetensors.index.json is missing");
    write_file("one", "{" LNF "}", 8);
    write_text("model.safetensors.index.json",
               "{\"weight_map\": {\"a\": \"one\", \"b\": \"two\", \"c\": \"three\", \"d\": \"one\"}}");
    refuse(GYRE_ERR_NOT_FOUND, "two is missing (2 of the 3 files");
    write_file("model.safetensors",
               "{\"ln_f.weight\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", 12);
    refuse(GYRE_ERR_FORMAT, "is [3]; this model needs [2]");
    write_file("model.safetensors",
               "{\"ln_f.weight_blocks\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}", 8);
    refuse(GYRE_ERR_UNSUPPORTED, "ln_f.weight is in 4 bits (MXFP4)");
    write_file("model.safetensors",
               "{\"ln_f.weight\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]}}", 16);
    refuse(GYRE_ERR_UNSUPPORTED, "F64: F32, BF16 and F16");
    write_file("model.safetensors",
               "{\"ln_f.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2);
    refuse(GYRE_ERR_UNSUPPORTED, "multiplied by their weight_scale_inv");
    write_file("model.safetensors",
               "{\"ln_f.weight\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 16);
    refuse(GYRE_ERR_FORMAT, "shape and offsets do not go together");
    write_file("model.safetensors",
               "{" LNF ",\"b\":{\"dtype\":\"I64\",\"shape\":[2,2],\"data_offsets\":[8,32]}}", 40);
    refuse(GYRE_ERR_FORMAT, "b in"); /* not read, and wrong all the same */
    write_file("model.safetensors",
               "{" LNF ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[7,11]}}", 16);
    refuse(GYRE_ERR_FORMAT, "transformer.ln_f.weight and b overlap");
    write_file("one", "{" LNF "}", 8);
    write_file("two", "{" LNF "}", 8);
    write_text("model.safetensors.index.json", "{\"weight_map\": {\"a\": \"one\", \"b\": \"two\"}}");
    refuse(GYRE_ERR_FORMAT, "both hold a tensor transformer.ln_f.weight");
    write_file("model.safetensors", "[1,2]", 0);
    refuse(GYRE_ERR_FORMAT, "not a safetensors file");
    write_text("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n");
    refuse(GYRE_ERR_FORMAT, "it is a pointer of Git LFS");
    write_text("model.safetensors", "PK\3\4 and more of it");
    refuse(GYRE_ERR_FORMAT, "or a file of PyTorch's");
    write_text("model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../x\"}}");
    refuse(GYRE_ERR_FORMAT, "not a name in this folder");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(quantized_folders),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
