// bindings/torch/tensors.hpp: PyTorch's tensors, types and operations as those of Gyre, or an error that names
// the call.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine.hpp"

#include <c10/util/irange.h>
#include <cstring>
#include <torch/csrc/api/include/torch/version.h>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

namespace gyre_torch
{

using Tensors = std::vector<at::Tensor>;

inline std::string text(const char *call, const std::string &what)
{
    return std::string(call) + ": " + what;
}

inline std::string shape(const at::Tensor &tensor)
{
    std::string s = std::string(c10::toString(tensor.scalar_type())) + " [";
    for (const auto i : c10::irange(tensor.dim()))
        s += (i ? ", " : "") + std::to_string(tensor.size(i));
    return s + "]";
}

inline size_t count_of(const at::Tensor &tensor)
{
    return static_cast<size_t>(tensor.numel());
}

inline gyre_type_t type_of(const char *call, const at::Tensor &tensor)
{
    switch (tensor.scalar_type()) {
    case at::kChar:
        return GYRE_INT8;
    case at::kByte:
        return GYRE_UINT8;
    case at::kShort:
        return GYRE_INT16;
    case at::kInt:
        return GYRE_INT32;
    case at::kLong:
        return GYRE_INT64;
    case at::kHalf:
        return GYRE_FLOAT16;
    case at::kBFloat16:
        return GYRE_BFLOAT16;
    case at::kFloat:
        return GYRE_FLOAT32;
    case at::kDouble:
        return GYRE_FLOAT64;
    case at::kBool:
        return GYRE_BOOL;
    case at::kComplexFloat:
        return GYRE_COMPLEX64;
    case at::kComplexDouble:
        return GYRE_COMPLEX128;
#if TORCH_VERSION_MAJOR >= 2
    case at::kFloat8_e4m3fn:
        return GYRE_FLOAT8_E4M3;
    case at::kFloat8_e5m2:
        return GYRE_FLOAT8_E5M2;
    case at::kUInt16:
        return GYRE_UINT16;
    case at::kUInt32:
        return GYRE_UINT32;
    case at::kUInt64:
        return GYRE_UINT64;
#endif
    default:
        fail(text(call, std::string("tensors of type ") + c10::toString(tensor.scalar_type()) +
                            " are not supported. Convert it, or view it as uint8"));
    }
}

// The factor of PREMUL_SUM, which was NCCL's alone once.
inline double factor_of(const c10d::NCCLPreMulSumSupplement &given)
{
#if TORCH_VERSION_MAJOR >= 2
    return given.tensor_factor.defined() ? given.tensor_factor.item<double>() : given.double_factor;
#else
    return given.tensor_factors.empty() ? given.double_factor : given.tensor_factors[0].item<double>();
#endif
}

// A bool is a truth value: its sum and maximum are "or", its product and minimum "and".
inline gyre_redop_t op_of(const char *call, const c10d::ReduceOp &op, const at::Tensor &tensor)
{
    const bool truth = tensor.scalar_type() == at::kBool;
    switch (op.op_) {
    case c10d::ReduceOp::SUM:
        return GYRE_OP(truth ? GYRE_LOR : GYRE_SUM);
    case c10d::ReduceOp::PRODUCT:
        return GYRE_OP(truth ? GYRE_LAND : GYRE_PROD);
    case c10d::ReduceOp::MIN:
        return GYRE_OP(truth ? GYRE_LAND : GYRE_MIN);
    case c10d::ReduceOp::MAX:
        return GYRE_OP(truth ? GYRE_LOR : GYRE_MAX);
    case c10d::ReduceOp::AVG:
        return GYRE_OP(GYRE_AVG);
    case c10d::ReduceOp::BAND:
        return GYRE_OP(GYRE_BAND);
    case c10d::ReduceOp::BOR:
        return GYRE_OP(GYRE_BOR);
    case c10d::ReduceOp::BXOR:
        return GYRE_OP(GYRE_BXOR);
    case c10d::ReduceOp::PREMUL_SUM:
        if (truth || !op.supplement_)
            fail(text(call, "the ReduceOp PREMUL_SUM takes a factor, and numbers instead of bools"));
        return GYRE_SCALED_SUM(
            factor_of(static_cast<const c10d::NCCLPreMulSumSupplement &>(*op.supplement_)));
    default:
        fail(text(call,
                  "this ReduceOp is not supported: use SUM, AVG, PREMUL_SUM, PRODUCT, MIN, MAX, BAND, BOR "
                  "or BXOR"));
    }
}

inline std::vector<gyre_redop_t> ops_of(const char *call, const c10d::ReduceOp &op, const Tensors &tensors)
{
    std::vector<gyre_redop_t> ops;
    for (const auto &tensor : tensors)
        ops.push_back(op_of(call, op, tensor));
    return ops;
}

// dense: the elements may lie in another order than that of the indices: Ordered.
inline void check(const char *call, const at::Tensor &tensor, bool dense = false)
{
    if (!tensor.defined())
        fail(text(call, "a tensor is not defined"));
    if (!tensor.device().is_cpu() && !tensor.device().is_cuda())
        fail(text(call, "the tensor is on " + tensor.device().str() +
                            ". Gyre takes tensors of the CPU and of CUDA devices: use .cpu()"));
    if (tensor.layout() != at::kStrided)
        fail(text(call, "the tensor is sparse. Use a dense one: .to_dense()"));
    if (dense ? !tensor.is_non_overlapping_and_dense() : !tensor.is_contiguous())
        fail(text(call, "the tensor " + shape(tensor) + " is not contiguous. Use .contiguous()"));
    if (tensor.is_conj() || tensor.is_neg())
        fail(text(call, "the tensor " + shape(tensor) +
                            " is negated when it is read. Use .resolve_conj() and .resolve_neg()"));
    type_of(call, tensor);
}

inline const at::Tensor &only(const char *call, const Tensors &tensors, bool dense = false)
{
    if (tensors.size() != 1)
        fail(text(call, "it takes one tensor on each rank, and got " + std::to_string(tensors.size())));
    check(call, tensors[0], dense);
    return tensors[0];
}

inline void same_device(const char *call, const at::Tensor &a, const at::Tensor &b)
{
    if (a.device() != b.device())
        fail(text(call, "a tensor is on " + a.device().str() + ", and another one on " + b.device().str() +
                            ": all tensors of a call need the same device"));
}

inline void same_type(const char *call, const at::Tensor &a, const at::Tensor &b)
{
    same_device(call, a, b);
    if (a.scalar_type() != b.scalar_type())
        fail(text(call, "the types differ: " + shape(a) + " and " + shape(b)));
}

// Dense tensors of a call in place, in the order of the indices, since strides may differ between ranks: copies
// of those that do not lie so.
struct Ordered {
    explicit Ordered(const Tensors &of)
    {
        for (const auto &tensor : of) {
            tensors.push_back(tensor.is_contiguous() ? tensor : tensor.detach().contiguous());
            if (!tensor.is_contiguous())
                copied.emplace_back(tensor.detach(), tensors.back());
        }
    }
    // What copies the results back; on a device on the current stream. Null: nothing is to be copied.
    std::function<void()> store() const
    {
        if (copied.empty())
            return nullptr;
        return [pairs = copied] {
            for (const auto &[tensor, copy] : pairs)
                tensor.copy_(copy, true);
        };
    }
    Tensors tensors;
    std::vector<std::pair<at::Tensor, at::Tensor>> copied;
};

// A list of tensors as one block of memory: where it lies, and the number of elements of each.
struct Block {
    Block(const char *call, const Tensors &tensors, const at::Tensor &like)
    {
        const size_t bytes = like.element_size();
        bool joined = true;
        for (const auto &tensor : tensors) {
            check(call, tensor);
            same_type(call, tensor, like);
            joined =
                joined && tensor.data_ptr() == static_cast<char *>(tensors[0].data_ptr()) + total * bytes;
            counts.push_back(count_of(tensor));
            total += counts.back();
        }
        if (!joined)
            stage = at::empty({static_cast<int64_t>(total)}, like.options().requires_grad(false));
        data = joined ? tensors[0].data_ptr() : stage.data_ptr();
    }
    // Between the block and the tensors, if these do not lie back to back; on a device on the current stream.
    void load(const Tensors &tensors) const { copy(tensors, true); }
    void store(const Tensors &tensors) const { copy(tensors, false); }
    void copy(const Tensors &tensors, bool in) const
    {
        if (!stage.defined())
            return;
        if (stage.is_cuda()) {
            int64_t from = 0;
            for (const auto &tensor : tensors) {
                auto part = stage.narrow(0, from, tensor.numel());
                in ? part.copy_(tensor.detach().view(-1), true) : tensor.detach().view(-1).copy_(part, true);
                from += tensor.numel();
            }
            return;
        }
        char *at = static_cast<char *>(data);
        for (const auto &tensor : tensors) {
            const size_t bytes = count_of(tensor) * tensor.element_size();
            if (bytes)
                in ? std::memcpy(at, tensor.data_ptr(), bytes) : std::memcpy(tensor.data_ptr(), at, bytes);
            at += bytes;
        }
    }
    bool even(size_t count) const
    {
        for (size_t c : counts)
            if (c != count)
                return false;
        return true;
    }

    at::Tensor stage;
    void *data = nullptr;
    std::vector<size_t> counts;
    size_t total = 0;
};

} // namespace gyre_torch
