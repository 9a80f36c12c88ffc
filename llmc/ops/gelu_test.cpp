#include "llmc/ops/gelu.h"

#include <cfloat>

#include "llmc/ops/op_test.h"

TEST(gelu, backward_is_the_derivative) {
    const size_t n = 37;
    Buffer x = grid_buffer(n, "x"), y(n), dx(n);
    const Buffer dy = random_buffer(n, "dy");
    gelu_backward(dx, dy, x, n, CpuStream{});
    expect_derivative("dx", x, dx, [&] {
        gelu_forward(y, x, n, CpuStream{});
        return inner(y, dy);
    });
}

TEST(gelu, is_finite_for_every_finite_x) {
    for (float x : {1e4f, 1e20f, FLT_MAX, FLT_TRUE_MIN, 0.f}) {
        for (float sign : {1.f, -1.f}) {
            const float in = sign * x, one = 1.f;
            float y, dx;
            gelu_forward(&y, &in, 1, CpuStream{});
            gelu_backward(&dx, &one, &in, 1, CpuStream{});
            EXPECT_EQ(y, in >= 1e4f ? in : in <= -1e4f ? 0.f : 0.5f * in);
            EXPECT_EQ(dx, in >= 1e4f ? 1.f : in <= -1e4f ? 0.f : 0.5f);
        }
    }
    float y;
    gelu_forward(&y, &kNan, 1, CpuStream{});
    EXPECT_TRUE(std::isnan(y));
}

TEST(gelu, works_in_place_and_its_bits_depend_on_nothing_but_the_element) {
    const size_t n = 1000;
    const Buffer x = random_buffer(n, "x", 3.f), dy = random_buffer(n, "dy");
    Buffer y(n), dx(n);
    gelu_forward(y, x, n, CpuStream{});
    gelu_backward(dx, dy, x, n, CpuStream{});
    Buffer y2 = x, dx2 = dy;
    gelu_forward(y2, y2, n, CpuStream{});
    gelu_backward(dx2, dx2, x, n, CpuStream{});
    EXPECT_TRUE(y == y2);
    EXPECT_TRUE(dx == dx2);
    for (size_t first = 0; first < n; first += 41) {
        Buffer piece(41), dpiece(41);
        const size_t count = std::min<size_t>(41, n - first);
        gelu_forward(piece, x + first, count, CpuStream{});
        gelu_backward(dpiece, dy + first, x + first, count, CpuStream{});
        EXPECT_EQ(std::memcmp(piece, y + first, count * 4), 0) << first;
        EXPECT_EQ(std::memcmp(dpiece, dx + first, count * 4), 0) << first;
    }
}
