#include "llmc/train/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "llmc/core/rng.h"

int sample_token(const float* logits, int V, const Sampling& how, uint64_t index) {
    const int best = int(std::max_element(logits, logits + V) - logits);
    if (how.temperature == 0) return best;

    // Candidates from the most to the least likely; equals in order of their ids.
    std::vector<int> ids(size_t(V), 0);
    std::iota(ids.begin(), ids.end(), 0);
    const auto likelier = [&](int a, int b) {
        return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    };
    const int kept = how.top_k > 0 ? std::min(how.top_k, V) : V;
    if (kept < V) std::nth_element(ids.begin(), ids.begin() + (kept - 1), ids.end(), likelier);
    ids.resize(size_t(kept));
    std::sort(ids.begin(), ids.end(), likelier);

    std::vector<double> p;
    for (int id : ids)
        p.push_back(std::exp((double(logits[id]) - double(logits[best])) / how.temperature));
    double total = std::accumulate(p.begin(), p.end(), 0.0);
    if (how.top_p < 1) {
        double sum = 0;
        size_t n = 0;
        while (n < p.size() && sum < how.top_p * total) sum += p[n++];
        p.resize(std::max<size_t>(n, 1));
        total = std::accumulate(p.begin(), p.end(), 0.0);
    }

    // Inverse of the cumulative distribution.
    const double u = double(random_uniform(how.seed, name_hash("sampling"), index)) * total;
    double sum = 0;
    for (size_t i = 0; i < p.size(); i++)
        if ((sum += p[i]) > u) return ids[i];
    return ids[p.size() - 1];
}
