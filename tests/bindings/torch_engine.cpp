// tests/bindings/torch_engine.cpp: a program of torch.sh, of one rank: the engine of bindings/torch without
// PyTorch. A test of one operation completes no other one, whose callback could block the thread that tests.
// SPDX-License-Identifier: Apache-2.0
#include "engine.hpp"

#include <cstdio>

using namespace gyre_torch;

int main()
{
    gyre_comm_t *comm = nullptr;
    if (gyre_init(nullptr, &comm) != GYRE_OK)
        return 2;
    const auto engine = Engine::create(comm, nullptr);
    static thread_local bool inside = false; // of the callback of `first`
    std::atomic<bool> go{false}, nested{false}, looked{false};
    OperationPtr first, second, asked;
    for (auto *operation : {&first, &second, &asked}) {
        *operation = std::make_shared<Operation>();
        (*operation)->call = "test";
        (*operation)->reached = [&go] { return go.load(); };
    }
    asked->reached = [] { return inside; }; // only the test sees its end
    asked->complete = [&] { asked->finished = true; };
    first->complete = [&] { // meanwhile `second` is to be completed, too
        inside = true;
        looked = engine->look(asked);
        inside = false;
        first->finished = true;
    };
    second->complete = [&] {
        nested = inside;
        second->finished = true;
    };
    for (const auto &operation : {first, second, asked})
        engine->issue(operation, [](gyre_comm_t *, Requests &) { return GYRE_OK; }, 0);
    go = true;
    const auto until = Clock::now() + std::chrono::seconds(20);
    for (const auto &operation : {first, second, asked})
        if (!engine->wait(*operation, until))
            std::puts("an operation has not ended");
    if (!looked)
        std::puts("the test has not seen the end of its operation");
    if (nested)
        std::puts("the test has run the callback of another operation");
    engine->close(false);
    return Engine::close_all(false, std::chrono::seconds(20)) && looked && !nested ? 0 : 1;
}
