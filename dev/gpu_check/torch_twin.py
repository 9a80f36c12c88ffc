"""GPT-2 in PyTorch, compiled, bf16, fused AdamW: how fast the usual way trains on this machine.

    torch_twin.py LAYERS HEADS WIDTH MICRO_BATCH SEQ_LEN STEPS

Prints one JSON object: the median step in ms and tokens/s, first ten steps left out.
"""
import json
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

if not hasattr(torch, "compile"):
    sys.exit("PyTorch 2 is needed for a compiled twin; this is " + torch.__version__)
L, H, C, B, T, steps = map(int, sys.argv[1:7])
VP = 50304
device = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.fc, self.fcproj = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, H, C // H).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, C))
        return x + self.fcproj(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VP, C), nn.Embedding(T, C)
        self.blocks = nn.ModuleList(Block() for _ in range(L))
        self.lnf = nn.LayerNorm(C)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(T, device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.lnf(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VP).float(), targets.view(-1))


torch.manual_seed(1)
torch.set_float32_matmul_precision("high")
model = Gpt().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                              fused=device == "cuda")
forward = torch.compile(model) if device == "cuda" else model
ids = torch.randint(0, 50257, (B, T + 1), device=device)
times = []
for step in range(steps):
    begin = time.perf_counter()
    with torch.autocast(device, torch.bfloat16):
        loss = forward(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    loss.item()
    times.append(time.perf_counter() - begin)
ms = 1e3 * statistics.median(times[min(10, steps - 1):])
print(json.dumps({"torch": torch.__version__, "device": device, "ms": round(ms, 2),
                  "tokens_per_s": round(B * T / ms * 1e3), "loss": round(loss.item(), 4)}))
