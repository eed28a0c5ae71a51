// SPDX-License-Identifier: Apache-2.0
// examples/heat.cpp: examples/heat.c in C++, by gyre/gyre.hpp. It prints the same.
//
//     g++ -std=c++17 -O2 -ffp-contract=off heat.cpp $(pkg-config --cflags --libs gyre) -o heat-cpp
//     ucx-run -n 4 ./heat-cpp [rows [columns [steps]]]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include <gyre/gyre.hpp>

namespace
{

// Rows of rank r of n: as even as can be.
std::size_t first_row(std::size_t rows, std::size_t r, std::size_t n)
{
    return rows / n * r + (r < rows % n ? r : rows % n);
}

// A band of rows with one more row above and below: now[rows + 2][columns].
struct Band {
    std::size_t first, rows, columns;
    gyre::Array<double> now, next; // std::vector would do: this memory saves neighbours on one host a copy

    Band(std::size_t first_, std::size_t rows_, std::size_t columns_)
        : first(first_), rows(rows_), columns(columns_), now((rows_ + 2) * columns_),
          next((rows_ + 2) * columns_)
    {
        // The plate's first row is hot; the other edges stay cold.
        for (std::size_t i = 0; first == 0 && i < columns; i++)
            now[columns + i] = next[columns + i] = 1.0;
    }
    gyre::span<double> row(std::size_t r) { return {now.data() + r * columns, columns}; }
    gyre::span<const double> own() const { return {now.data() + columns, rows * columns}; }

    // One step. Returns the sum of squared changes of the band's rows.
    double step(std::size_t plate)
    {
        const std::size_t w = columns;
        double change = 0;
        for (std::size_t r = 1; r <= rows; r++) {
            const double *u = now.data() + r * w;
            double *v = next.data() + r * w;
            if (first + r - 1 == 0 || first + r == plate)
                continue; // the edges are held
            for (std::size_t c = 1; c + 1 < w; c++) {
                v[c] = u[c] + 0.2 * (u[c - 1] + u[c + 1] + u[c - w] + u[c + w] - 4 * u[c]);
                change += (v[c] - u[c]) * (v[c] - u[c]);
            }
        }
        std::swap(now, next);
        return change;
    }
};

// Rows of the neighbours to above and below ours. All four messages are started together.
void exchange(Band &band, const gyre::Communicator &comm)
{
    const int up = comm.rank() - 1, down = comm.rank() + 1;
    gyre::Group group;
    if (up >= 0) {
        comm.send(band.row(1), up);
        comm.recv(band.row(0), up);
    }
    if (down < comm.size()) {
        comm.send(band.row(band.rows), down);
        comm.recv(band.row(band.rows + 1), down);
    }
    group.end();
}

// Rank 0: the same plate in one piece; false if `field` has the same bits.
bool differs(const std::vector<double> &field, std::size_t plate, std::size_t columns, std::size_t steps,
             double last)
{
    Band whole(0, plate, columns);
    double change = 0;
    for (std::size_t s = 0; s < steps; s++)
        change = whole.step(plate);
    const bool same = std::memcmp(field.data(), whole.own().data(), field.size() * sizeof(double)) == 0;
    const double off = change > 0 ? (last - change) / change : last; // the sums run in another order
    std::printf("against one process: field %s, norm off by %.1e\n",
                same ? "identical to the last bit" : "DIFFERS", off);
    return !same || off > 1e-12 || off < -1e-12;
}

bool simulate(const gyre::Communicator &world, std::size_t plate, std::size_t columns, std::size_t steps)
{
    const std::size_t rank = static_cast<std::size_t>(world.rank()),
                      n = static_cast<std::size_t>(world.size());
    const std::size_t first = first_row(plate, rank, n);
    Band band(first, first_row(plate, rank + 1, n) - first, columns);
    double change = 0;
    for (std::size_t s = 0; s < steps; s++) {
        exchange(band, world);
        change = band.step(plate);
        world.all_reduce(change, gyre::Op::sum);
        if (rank == 0 && (s + 1) % (steps > 4 ? steps / 4 : 1) == 0)
            std::printf("step %zu: sum of squared changes %.6e\n", s + 1, change);
    }

    std::vector<std::size_t> counts(n);
    for (std::size_t r = 0; r < n; r++)
        counts[r] = (first_row(plate, r + 1, n) - first_row(plate, r, n)) * columns;
    std::vector<double> field(rank == 0 ? plate * columns : 0);
    world.gatherv(band.own(), field, counts, 0);
    bool wrong = rank == 0 && differs(field, plate, columns, steps, change);
    world.broadcast(wrong, 0);
    return wrong;
}

std::size_t argument(int argc, char **argv, int i, std::size_t otherwise)
{
    char *end;
    if (i >= argc)
        return otherwise;
    const unsigned long value = std::strtoul(argv[i], &end, 10);
    return *end || value > 100000 ? 0 : value;
}

} // namespace

int main(int argc, char **argv)
{
    const std::size_t plate = argument(argc, argv, 1, 256), columns = argument(argc, argv, 2, 256);
    const std::size_t steps = argument(argc, argv, 3, 400);
    try {
        gyre::Communicator world = gyre::Communicator::init();
        if (plate < static_cast<std::size_t>(world.size()) || columns < 3 || steps < 1) {
            std::fprintf(
                stderr,
                "usage: heat [rows [columns [steps]]], at least one row per rank and three columns\n");
            return 2;
        }
        return simulate(world, plate, columns, steps);
    } catch (const gyre::Error &error) {
        std::fprintf(stderr, "heat: %s\n", error.what());
        return 1;
    }
}
