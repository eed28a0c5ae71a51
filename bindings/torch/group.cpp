// bindings/torch/group.cpp: the process group "gyre": PyTorch's collectives, on tensors of the CPU or of a device, as
// calls of Gyre.
// Each method checks its tensors, which throws at once, starts the calls, and returns the work.
// SPDX-License-Identifier: Apache-2.0
#include "start.hpp"

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/utils/pybind.h>

namespace gyre_torch
{
namespace
{

// How a group makes its operations: gyre_torch.Options.
struct Settings {
    Settings(std::string o = "", std::string a = "", size_t c = 0)
        : order(std::move(o)), algorithm(std::move(a)), chunk(c)
    {
    }
    std::string order;
    std::string algorithm;
    size_t chunk;
};

struct Exchange;

class Group : public Starter
{
  public:
    // parent: the default group, or null; ranks: the members of this one by their ranks there. Without
    // settings the group has those of its parent.
    Group(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, double timeout_s,
          const std::optional<Settings> &settings, const c10::intrusive_ptr<Group> &parent,
          const std::vector<int> &ranks);
    ~Group() override { engine_->close(false); }
    const std::string getBackendName() const override { return "gyre"; }

    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override
    {
        Call call(*this, "broadcast");
        call.on(only(call, tensors, true));
        const Ordered ordered(tensors);
        const auto &t = ordered.tensors[0];
        const auto type = type_of(call, t);
        const int root = root_of(call, opts.rootRank);
        return start(
            call, c10d::OpType::BROADCAST, ordered.tensors, tensors,
            [&](auto comm, auto &r) {
                return GYRE(broadcast, 0, t.data_ptr(), t.data_ptr(), count_of(t), type, root);
            },
            ordered.store());
    }

    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override
    {
        Call call(*this, "all_reduce");
        only(call, tensors, true);
        return reduce_all(call, c10d::OpType::ALLREDUCE, tensors, opts.reduceOp);
    }

    WorkPtr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts) override
    {
        return reduce_all("all_reduce_coalesced", c10d::OpType::ALLREDUCE_COALESCED, tensors, opts.reduceOp);
    }

    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override
    {
        Call call(*this, "reduce");
        call.on(only(call, tensors, true));
        const Ordered ordered(tensors);
        const auto &t = ordered.tensors[0];
        const auto op = op_of(call, opts.reduceOp, t);
        const int root = root_of(call, opts.rootRank);
        return start(
            call, c10d::OpType::REDUCE, ordered.tensors, tensors,
            [&](auto comm, auto &r) {
                return GYRE(reduce, 0, t.data_ptr(), root == rank_ ? t.data_ptr() : nullptr, count_of(t),
                            type_of(call, t), op, root);
            },
            root == rank_ ? ordered.store() : nullptr);
    }

    WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &) override
    {
        Call call(*this, "all_gather");
        const auto &in = only(call, inputs);
        call.on(in);
        const auto &list = list_of(call, outputs);
        auto block = std::make_shared<Block>(call, list, in);
        same_size(call, list[static_cast<size_t>(rank_)], in);
        return start(
            call, c10d::OpType::ALLGATHER, inputs, list,
            [&](auto comm, auto &r) {
                const auto type = type_of(call, in);
                return block->even(count_of(in))
                           ? GYRE(all_gather, 0, in.data_ptr(), block->data, count_of(in), type)
                           : GYRE(all_gatherv, 0, in.data_ptr(), block->data, block->counts.data(), nullptr,
                                  type);
            },
            [block, list] { block->store(list); });
    }

    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &) override
    {
        return gather_into("all_gather_into_tensor", c10d::OpType::_ALLGATHER_BASE, {output}, {input});
    }

    WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &) override
    {
        Call call(*this, "all_gather_coalesced");
        // outputs: [rank][i]
        if (outputs.size() != size())
            fail(text(call, "it takes one list of outputs for each rank"));
        std::vector<Tensors> lists(inputs.size());
        std::vector<std::shared_ptr<Block>> blocks;
        Tensors flat;
        for (const auto i : c10::irange(inputs.size())) {
            check(call, inputs[i]);
            same_device(call, inputs[i], inputs[0]);
            call.on(inputs[0]);
            for (const auto &of_rank : outputs) {
                if (of_rank.size() != inputs.size())
                    fail(text(call, "a list of outputs has another length than the list of inputs"));
                lists[i].push_back(of_rank[i]);
                flat.push_back(of_rank[i]);
            }
            blocks.push_back(std::make_shared<Block>(call, lists[i], inputs[i]));
            if (!blocks[i]->even(count_of(inputs[i])))
                fail(text(call, "an output has another size than the input " + shape(inputs[i])));
        }
        return start(
            call, c10d::OpType::ALLGATHER_COALESCED, inputs, flat,
            [&](auto comm, auto &r) {
                gyre_status_t status = GYRE_OK;
                for (size_t i = 0; i < inputs.size() && status == GYRE_OK; i++)
                    status = GYRE(all_gather, i, inputs[i].data_ptr(), blocks[i]->data, count_of(inputs[i]),
                                  type_of(call, inputs[i]));
                return status;
            },
            [blocks, lists] {
                for (const auto i : c10::irange(lists.size()))
                    blocks[i]->store(lists[i]);
            },
            inputs.size());
    }

    WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &opts) override
    {
        Call call(*this, "gather");
        const auto &in = only(call, inputs);
        call.on(in);
        const int root = root_of(call, opts.rootRank);
        Tensors list;
        std::shared_ptr<Block> block;
        if (root == rank_) {
            list = outputs_of(call, outputs, in);
            block = std::make_shared<Block>(call, list, in);
        } else if (!outputs.empty() && !outputs[0].empty()) {
            fail(text(call, "only the root has outputs"));
        }
        return start(
            call, c10d::OpType::GATHER, inputs, list,
            [&](auto comm, auto &r) {
                return GYRE(gather, 0, in.data_ptr(), block ? block->data : nullptr, count_of(in),
                            type_of(call, in), root);
            },
            [block, list] {
                if (block)
                    block->store(list);
            });
    }

#if TORCH_VERSION_MAJOR >= 2
    // Newer versions of PyTorch 2 have it, and so it is not marked as overriding. gather_single comes here, too.
    WorkPtr gather_into_tensor(at::Tensor &output, at::Tensor &input, const c10d::GatherOptions &opts)
    {
        Call call(*this, "gather_single");
        check(call, input);
        call.on(input);
        const int root = root_of(call, opts.rootRank);
        if (root == rank_)
            check_ratio(call, {output}, {input});
        return start(call, c10d::OpType::GATHER, {input}, {output}, [&](auto comm, auto &r) {
            return GYRE(gather, 0, input.data_ptr(), root == rank_ ? output.data_ptr() : nullptr,
                        count_of(input), type_of(call, input), root);
        });
    }
#endif

    WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &opts) override
    {
        Call call(*this, "scatter");
        const auto &out = only(call, outputs);
        call.on(out);
        const int root = root_of(call, opts.rootRank);
        Tensors list;
        std::shared_ptr<Block> block;
        if (root == rank_) {
            list = outputs_of(call, inputs, out);
            block = std::make_shared<Block>(call, list, out);
            block->load(list);
        } else if (!inputs.empty() && !inputs[0].empty()) {
            fail(text(call, "only the root has inputs"));
        }
        return start(
            call, c10d::OpType::SCATTER, list, outputs,
            [&](auto comm, auto &r) {
                return GYRE(scatter, 0, block ? block->data : nullptr, out.data_ptr(), count_of(out),
                            type_of(call, out), root);
            },
            [block] { /* it is kept until here */ });
    }

    WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                           const c10d::ReduceScatterOptions &opts) override
    {
        Call call(*this, "reduce_scatter");
        const auto &out = only(call, outputs);
        call.on(out);
        const Tensors list = list_of(call, inputs);
        auto block = std::make_shared<Block>(call, list, out);
        same_size(call, list[static_cast<size_t>(rank_)], out);
        block->load(list);
        const auto op = op_of(call, opts.reduceOp, out);
        return start(
            call, c10d::OpType::REDUCE_SCATTER, list, outputs,
            [&](auto comm, auto &r) {
                return GYRE(reduce_scatterv, 0, block->data, out.data_ptr(), block->counts.data(),
                            type_of(call, out), op);
            },
            [block] { /* it is kept until here */ });
    }

    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &opts) override
    {
        return scatter_from("reduce_scatter_tensor", c10d::OpType::_REDUCE_SCATTER_BASE, {output}, {input},
                            opts.reduceOp);
    }

#if TORCH_VERSION_MAJOR >= 2
    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &) override
    {
        return gather_into("all_gather_into_tensor_coalesced", c10d::OpType::COALESCED, outputs, inputs);
    }

    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &opts) override
    {
        return scatter_from("reduce_scatter_tensor_coalesced", c10d::OpType::COALESCED, outputs, inputs,
                            opts.reduceOp);
    }
#endif

    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                          std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &) override
    {
        Call call(*this, "all_to_all_single");
        check(call, output);
        check(call, input);
        same_type(call, output, input);
        call.on(input);
        const auto in = counts_of(call, "input", input, input_splits);
        const auto out = counts_of(call, "output", output, output_splits);
        return start(call, c10d::OpType::ALLTOALL_BASE, {input}, {output}, [&](auto comm, auto &r) {
            return GYRE(all_to_allv, 0, input.data_ptr(), in.data(), nullptr, output.data_ptr(), out.data(),
                        nullptr, type_of(call, input));
        });
    }

    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &) override
    {
        Call call(*this, "all_to_all");
        if (outputs.size() != size() || inputs.size() != size())
            fail(text(call, "it takes lists of " + std::to_string(size_) + " tensors, one for each rank"));
        check(call, inputs[0]);
        call.on(inputs[0]);
        auto in = std::make_shared<Block>(call, inputs, inputs[0]);
        auto out = std::make_shared<Block>(call, outputs, inputs[0]);
        in->load(inputs);
        const Tensors list = outputs;
        return start(
            call, c10d::OpType::ALLTOALL, inputs, outputs,
            [&](auto comm, auto &r) {
                return GYRE(all_to_allv, 0, in->data, in->counts.data(), nullptr, out->data,
                            out->counts.data(), nullptr, type_of(call, inputs[0]));
            },
            [in, out, list] { out->store(list); });
    }

    // Messages between two ranks match in the order of the calls. A first message carries the tag, so that a
    // receive with another tag is an error. On a device there are no tags, as with NCCL.
    WorkPtr send(Tensors &tensors, int peer, int tag) override
    {
        Call call(*this, "send");
        const auto &t = only(call, tensors);
        call.on(t);
        if (call.device())
            return message(call, c10d::OpType::SEND, t, peer);
        auto head = at::tensor({int64_t{tag}, static_cast<int64_t>(t.nbytes())});
        return start(
            call, c10d::OpType::SEND, {t, head}, {},
            [&](auto comm, auto &r) {
                gyre_status_t status = gyre_isend(head.data_ptr(), 2, GYRE_INT64, peer, comm, &r[0]);
                if (status == GYRE_OK)
                    status = gyre_isend(t.data_ptr(), count_of(t), type_of(call, t), peer, comm, &r[1]);
                return status;
            },
            nullptr, 2);
    }

    WorkPtr recv(Tensors &tensors, int peer, int tag) override
    {
        Call call(*this, "recv");
        const auto &t = only(call, tensors);
        call.on(t);
        if (call.device())
            return message(call, c10d::OpType::RECV, t, peer);
        auto head = at::zeros({2}, at::kLong);
        return start(
            call, c10d::OpType::RECV, {head}, {t},
            [&](auto comm, auto &r) {
                gyre_status_t status = gyre_irecv(head.data_ptr(), 2, GYRE_INT64, peer, comm, &r[0]);
                if (status == GYRE_OK)
                    status = gyre_irecv(t.data_ptr(), count_of(t), type_of(call, t), peer, comm, &r[1]);
                return status;
            },
            [head, peer, tag] {
                const auto sent = static_cast<const int64_t *>(head.data_ptr())[0];
                if (sent != tag)
                    fail(text("recv", "rank " + std::to_string(peer) + " has sent tag " +
                                          std::to_string(sent) + ", and tag " + std::to_string(tag) +
                                          " was asked for. Messages between " +
                                          "two ranks are received in the order in which they were sent"));
            },
            2);
    }

    WorkPtr recvAnysource(Tensors &, int) override
    {
        Call call(*this, "recv");
        fail(text(call, "a receive from any source is not supported by gyre. Name the source: src=RANK"));
    }

    // On the device of the group, once it has one: it waits for what the current stream has, too.
    WorkPtr barrier(const c10d::BarrierOptions &opts) override
    {
        Call call(*this, "barrier");
        if (!opts.device_ids.empty() && c10::impl::hasDeviceGuardImpl(c10::kCUDA))
            call.on(
                device_of(call, c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(opts.device_ids[0]))));
        else if (prepared_)
            call.on(device_);
        return start(call, c10d::OpType::BARRIER, {}, {}, [&](auto comm, auto &r) {
            return call.stream() ? gyre_barrier_stream(comm, *call.stream()) : gyre_ibarrier(comm, &r[0]);
        });
    }

    void monitoredBarrier(const c10d::BarrierOptions &, bool) override
    {
        Call call(*this, "barrier");
        start(call, c10d::OpType::BARRIER, {}, {}, [&](auto comm, auto &r) {
            return gyre_ibarrier(comm, &r[0]);
        })->wait(); // Gyre's text names the rank that is late
    }
#if TORCH_VERSION_MAJOR >= 2
    void abort()
    {
        engine_->close(true);
    }
#endif
    void setSequenceNumberForGroup() override {}
    uint64_t getSequenceNumberForGroup() override
    {
        return sequence_;
    }

  private:
    size_t size() const
    {
        return static_cast<size_t>(size_);
    }

    int root_of(const char *call, int64_t root) const
    {
        if (root < 0 || root >= size_)
            fail(text(call,
                      "root " + std::to_string(root) + " is out of range 0.." + std::to_string(size_ - 1)));
        return static_cast<int>(root);
    }

    // The list of a call with one tensor for each rank.
    const Tensors &list_of(const char *call, const std::vector<Tensors> &lists) const
    {
        if (lists.size() != 1 || lists[0].size() != size())
            fail(text(call, "it takes a list of " + std::to_string(size_) +
                                " tensors, one for each rank, and got " +
                                std::to_string(lists.empty() ? 0 : lists[0].size())));
        return lists[0];
    }
    void same_size(const char *call, const at::Tensor &of_list, const at::Tensor &mine) const
    {
        if (of_list.numel() != mine.numel())
            fail(text(call, "a tensor of the list is " + shape(of_list) +
                                ", and the tensor of this rank is " + shape(mine) +
                                ": they need the same size"));
    }
    // Each as large as `like`.
    const Tensors &outputs_of(const char *call, const std::vector<Tensors> &lists,
                              const at::Tensor &like) const
    {
        for (const auto &tensor : list_of(call, lists))
            same_size(call, tensor, like);
        return lists[0];
    }

    std::vector<size_t> counts_of(const char *call, const char *which, const at::Tensor &tensor,
                                  const std::vector<int64_t> &splits) const
    {
        const int64_t rows = tensor.dim() ? tensor.size(0) : 1;
        if (splits.empty()) {
            if (rows % size_)
                fail(text(call, std::string("the ") + which + " " + shape(tensor) + " cannot be split into " +
                                    std::to_string(size_) + " equal parts along its first dimension"));
            return std::vector<size_t>(size(), count_of(tensor) / size());
        }
        int64_t sum = 0;
        bool valid = splits.size() == size();
        for (int64_t split : splits) {
            valid = valid && split >= 0;
            sum += split;
        }
        if (!valid || sum != rows)
            fail(text(call, std::string("the ") + which + " splits need " + std::to_string(size_) +
                                " numbers that add up to " + std::to_string(rows)));
        std::vector<size_t> counts;
        for (int64_t split : splits)
            counts.push_back(rows ? static_cast<size_t>(split * (tensor.numel() / rows)) : 0);
        return counts;
    }

    WorkPtr reduce_all(const char *name, c10d::OpType type, const Tensors &tensors, const c10d::ReduceOp &op)
    {
        Call call(*this, name);
        for (const auto &tensor : tensors) {
            check(call, tensor, true);
            same_device(call, tensor, tensors[0]);
        }
        const auto ops = ops_of(call, op, tensors);
        if (!tensors.empty())
            call.on(tensors[0]);
        const Ordered ordered(tensors);
        return start(
            call, type, ordered.tensors, tensors,
            [&](auto comm, auto &r) {
                gyre_status_t status = GYRE_OK;
                for (size_t i = 0; i < tensors.size() && status == GYRE_OK; i++) {
                    const auto &t = ordered.tensors[i];
                    status = GYRE(all_reduce, i, t.data_ptr(), t.data_ptr(), count_of(t), type_of(call, t),
                                  ops[i]);
                }
                return status;
            },
            ordered.store(), tensors.size());
    }

    void check_ratio(const char *call, const Tensors &large, const Tensors &small) const
    {
        if (large.size() != small.size())
            fail(text(call, "the lists of inputs and outputs have different lengths"));
        for (const auto i : c10::irange(large.size())) {
            check(call, large[i]);
            check(call, small[i]);
            same_type(call, large[i], small[i]);
            same_device(call, large[i], large[0]);
            if (large[i].numel() != small[i].numel() * size_)
                fail(text(call, shape(large[i]) + " does not have " + std::to_string(size_) +
                                    " times the elements of " + shape(small[i])));
        }
    }

    WorkPtr gather_into(const char *name, c10d::OpType type, const Tensors &outputs, const Tensors &inputs)
    {
        Call call(*this, name);
        check_ratio(call, outputs, inputs);
        if (!inputs.empty())
            call.on(inputs[0]);
        return start(
            call, type, inputs, outputs,
            [&](auto comm, auto &r) {
                gyre_status_t status = GYRE_OK;
                for (size_t i = 0; i < inputs.size() && status == GYRE_OK; i++)
                    status = GYRE(all_gather, i, inputs[i].data_ptr(), outputs[i].data_ptr(),
                                  count_of(inputs[i]), type_of(call, inputs[i]));
                return status;
            },
            nullptr, inputs.size());
    }

    WorkPtr scatter_from(const char *name, c10d::OpType type, const Tensors &outputs, const Tensors &inputs,
                         const c10d::ReduceOp &op)
    {
        Call call(*this, name);
        check_ratio(call, inputs, outputs);
        if (!inputs.empty())
            call.on(inputs[0]);
        const auto ops = ops_of(call, op, inputs);
        return start(
            call, type, inputs, outputs,
            [&](auto comm, auto &r) {
                gyre_status_t status = GYRE_OK;
                for (size_t i = 0; i < inputs.size() && status == GYRE_OK; i++)
                    status = GYRE(reduce_scatter, i, inputs[i].data_ptr(), outputs[i].data_ptr(),
                                  count_of(outputs[i]), type_of(call, inputs[i]), ops[i]);
                return status;
            },
            nullptr, inputs.size());
    }

    std::shared_ptr<Engine> job(Exchange &exchange, double timeout_s) const;
    std::shared_ptr<Engine> part_of(Group &parent, const std::vector<int> &ranks, uint64_t tag,
                                    double timeout_s) const;
    gyre_options_t options() const;

    Settings settings_;
    std::atomic<uint64_t> groups_{0}; // made of this one, with this rank as the first
};

// What the members of a new group say to each other, through the store of PyTorch. The store may have what the
// members of an earlier group of the same name have said: `start` is the number of this one among those of its size.
struct Exchange {
    c10d::Store &store;
    const int rank;
    const int size;
    const std::string name = "gyre/" + std::to_string(size) + "/";
    const int64_t start = (store.add(name + "starts", 1) - 1) / size;
    int calls = 0;
    std::string error = {};

    std::vector<std::vector<uint8_t>> all(const std::vector<uint8_t> &mine)
    {
        const std::string key = name + std::to_string(start) + "/" + std::to_string(calls++) + "/";
        store.set(key + std::to_string(rank), mine);
        std::vector<std::vector<uint8_t>> values;
        for (int r = 0; r < size; r++)
            values.push_back(r == rank ? mine : store.get(key + std::to_string(r)));
        return values;
    }
    // gyre_create_t.all_gather
    static gyre_status_t all_gather(const void *mine, void *all, size_t bytes, void *user)
    {
        auto &self = *static_cast<Exchange *>(user);
        const auto *from = static_cast<const uint8_t *>(mine);
        auto *to = static_cast<uint8_t *>(all);
        try {
            for (const auto &value : self.all(std::vector<uint8_t>(from, from + bytes))) {
                if (value.size() != bytes)
                    fail("a rank has put another number of bytes into the store");
                to = std::copy(value.begin(), value.end(), to);
            }
            return GYRE_OK;
        } catch (const std::exception &e) {
            self.error = e.what();
            return GYRE_ERR_BOOTSTRAP;
        }
    }
};

gyre_order_t order_of(const std::string &order)
{
    static const std::pair<const char *, gyre_order_t> orders[] = {{"", GYRE_ORDER_DEFAULT},
                                                                   {"canonical", GYRE_ORDER_CANONICAL},
                                                                   {"fast", GYRE_ORDER_FAST},
                                                                   {"exact", GYRE_ORDER_EXACT}};
    for (const auto &[name, value] : orders)
        if (order == name)
            return value;
    fail("gyre_torch.Options: order '" + order + "' is unknown: use canonical, fast or exact");
}

gyre_options_t Group::options() const
{
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.order = order_of(settings_.order);
    options.algorithm = settings_.algorithm.empty() ? nullptr : settings_.algorithm.c_str();
    options.chunk = settings_.chunk;
    return options;
}

std::shared_ptr<Engine> Group::job(Exchange &exchange, double timeout_s) const
{
    const auto options = this->options();
    gyre_create_t create = GYRE_CREATE_INITIALIZER;
    create.rank = rank_;
    create.nranks = size_;
    create.all_gather = Exchange::all_gather;
    create.user = &exchange;
    create.timeout_s = timeout_s;
    create.name = "torch"; // that of PyTorch may differ between ranks
    create.options = &options;
    gyre_comm_t *comm = nullptr;
    if (gyre_comm_create(&create, &comm) != GYRE_OK)
        fail(text("init_process_group",
                  exchange.error.empty() ? gyre_last_error() : "the store of PyTorch: " + exchange.error));
    return Engine::create(comm, nullptr);
}

std::shared_ptr<Engine> Group::part_of(Group &parent, const std::vector<int> &ranks, uint64_t tag,
                                       double timeout_s) const
{
    gyre_comm_t *comm = nullptr;
    const auto making = std::make_shared<Operation>();
    making->call = "new_group";
    making->complete = [making = making.get()] { making->finished = true; };
    parent.engine_->issue(making, [&](auto of, auto &r) {
        return gyre_comm_icreate_group(of, ranks.data(), size_, tag, &comm, &r[0]);
    });
    parent.engine_->wait(*making, std::nullopt);
    if (!making->error.empty())
        fail(making->error);
    auto options = this->options();
    options.timeout_s = timeout_s;
    if (gyre_comm_set(comm, &options) != GYRE_OK) {
        const auto why = text("new_group", gyre_last_error());
        gyre_comm_destroy(comm);
        fail(why);
    }
    return Engine::create(comm, parent.engine_);
}

Group::Group(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, double timeout_s,
             const std::optional<Settings> &settings, const c10::intrusive_ptr<Group> &parent,
             const std::vector<int> &ranks)
    : Starter(rank, size), settings_(settings ? *settings
                                     : parent ? parent->settings_
                                              : Settings())
{
    options(); // throws before the others are waited for
    Exchange exchange = {*store, rank, size};
    if (parent) {
        // A communicator of the job of the default group, if that works on all members. The tag is that of
        // the first of them, and differs from those of groups that are made meanwhile.
        const uint64_t mine = static_cast<uint64_t>(parent->rank_) << 32 | parent->groups_++;
        uint64_t tag = 0;
        bool works = true;
        std::vector<uint8_t> said(sizeof mine);
        std::memcpy(said.data(), &mine, sizeof mine);
        const auto all = exchange.all(parent->engine_->failed() ? std::vector<uint8_t>() : said);
        for (const auto &value : all)
            works = works && value.size() == sizeof tag;
        if (works) {
            std::memcpy(&tag, all[0].data(), sizeof tag);
            engine_ = part_of(*parent, ranks, tag, timeout_s);
            return;
        }
    }
    engine_ = job(exchange, timeout_s);
}

} // namespace
} // namespace gyre_torch

PYBIND11_MODULE(_gyre_torch, m)
{
    using namespace gyre_torch;
    namespace py = pybind11;
    py::module_::import("torch.distributed");
    py::class_<Settings>(m, "Settings").def(py::init<std::string, std::string, size_t>());
    py::class_<Group, Base, c10::intrusive_ptr<Group>>(m, "ProcessGroupGyre")
        .def(py::init<const c10::intrusive_ptr<c10d::Store> &, int, int, double,
                      const std::optional<Settings> &, const c10::intrusive_ptr<Group> &,
                      const std::vector<int> &>(),
             py::call_guard<py::gil_scoped_release>());
    m.def(
        "close_all",
        [](bool failing, double seconds) {
            return Engine::close_all(failing, Milliseconds(static_cast<int64_t>(seconds * 1000)));
        },
        py::call_guard<py::gil_scoped_release>());
}
