#include "llmc/core/nearest.h"

#include <algorithm>

// Optimal string alignment: insert, delete, replace, or swap neighbours.
// Damerau 1964, Communications of the ACM 7(3), p. 171.
std::string nearest_name(const std::string& wrong, const std::vector<std::string>& names) {
    std::string best;
    size_t best_distance = std::max<size_t>(2, wrong.size() / 3) + 1;
    for (const std::string& name : names) {
        const size_t n = wrong.size(), m = name.size();
        std::vector<std::vector<size_t>> d(n + 1, std::vector<size_t>(m + 1));
        for (size_t i = 0; i <= n; i++) d[i][0] = i;
        for (size_t j = 0; j <= m; j++) d[0][j] = j;
        for (size_t i = 1; i <= n; i++)
            for (size_t j = 1; j <= m; j++) {
                d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1,
                                    d[i - 1][j - 1] + (wrong[i - 1] != name[j - 1])});
                if (i > 1 && j > 1 && wrong[i - 1] == name[j - 2] && wrong[i - 2] == name[j - 1])
                    d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
            }
        if (d[n][m] < best_distance) best_distance = d[n][m], best = name;
    }
    return best;
}

std::string did_you_mean(const std::string& wrong, const std::vector<std::string>& names,
                         const std::string& before, const std::string& after,
                         const std::string& rest) {
    const std::string name = nearest_name(wrong, names);
    if (name.empty()) return rest;
    return "did you mean " + before + name + after + "?" + (rest.empty() ? "" : " " + rest);
}

std::string did_you_mean(const std::string& wrong, const std::vector<std::string>& names) {
    return did_you_mean(wrong, names, "'", "'");
}
