#!/usr/bin/env python3
"""The speed of one GPT-2 training step in PyTorch on the CPU, for scripts/bench_torch.sh.

    /usr/bin/python3 dev/reference/bench_torch.py LAYERS HEADS WIDTH VOCAB B T

Forward, cross-entropy, backward, clipping and AdamW, fp32, as a user would write it: nn.Linear, LayerNorm,
tanh GELU, a masked softmax (PyTorch 1.13 has no fused attention on the CPU). Prints tokens/s, the median
of the steps after the first, and the peak resident memory.
"""
import math
import resource
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        B, T, C = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(C, dim=2)
        q, k, v = (z.view(B, T, self.heads, C // self.heads).transpose(1, 2) for z in (q, k, v))
        att = (q @ k.transpose(-2, -1)) / math.sqrt(C // self.heads)
        att = F.softmax(att.masked_fill(mask[:T, :T], float("-inf")), dim=-1)
        x = x + self.c_proj((att @ v).transpose(1, 2).reshape(B, T, C))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, vocab, T):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(T, width)
        self.blocks = nn.ModuleList(Block(heads, width) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.register_buffer("mask", torch.triu(torch.ones(T, T, dtype=torch.bool), 1))

    def forward(self, x, y):
        h = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h, self.mask)
        logits = self.ln_f(h) @ self.wte.weight.t()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))


def main():
    layers, heads, width, vocab, B, T = map(int, sys.argv[1:7])
    torch.manual_seed(0)
    model = Gpt(layers, heads, width, vocab, T)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    x, y = torch.randint(vocab, (B, T)), torch.randint(vocab, (B, T))
    times = []
    for _ in range(4):
        begin = time.perf_counter()
        loss = model(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    step = statistics.median(times[1:])
    print(f"PyTorch {torch.__version__}: {B * T / step:.1f} tokens/s, {step * 1e3:.0f} ms a step, peak {peak:.2f} GiB")


if __name__ == "__main__":
    main()
