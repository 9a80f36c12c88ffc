#!/usr/bin/env python3
"""Reference values of every op, from PyTorch, for llmc/ops/reference_test.cpp.

  /usr/bin/python3 dev/reference/ops.py [dev/reference/ops.h5]      (Debian: python3-torch python3-h5py)

Inputs are rounded to float first; outputs and gradients are computed from them in double by PyTorch
and its autograd, and rounded once. So what a test sees is the op's own error. Sizes are odd on
purpose. The same seeds give the same file up to PyTorch's own last bits in double, which rounding to
float hides.
"""
import sys

import h5py
import torch
import torch.nn.functional as F

torch.manual_seed(1)
torch.set_default_dtype(torch.float64)


def inputs(*shape, scale=1.0):
    """Normal values that are floats, ready to be differentiated by."""
    return (scale * torch.randn(*shape)).float().double().requires_grad_()


def gradient(*shape):
    return torch.randn(*shape).float().double()


def save(group, **tensors):
    for name, t in tensors.items():
        t = t.detach()
        group[name] = t.to(torch.int32 if t.dtype == torch.int64 else torch.float32).numpy()


def save_grads(group, **tensors):
    save(group, **{"d" + name: t.grad for name, t in tensors.items()})


def embedding(group):
    B, T, C, V, most = 3, 5, 7, 11, 9
    wte, wpe = inputs(V, C), inputs(most, C)
    tokens, dx = torch.randint(V, (B, T)), gradient(B, T, C)
    x = F.embedding(tokens, wte) + wpe[:T]
    x.backward(dx)
    save(group, tokens=tokens, wte=wte, wpe=wpe, x=x, dx=dx)
    save_grads(group, wte=wte, wpe=wpe)


def layernorm(group):
    N, C, eps = 5, 37, 1e-5
    x, branch, w, b = inputs(N, C), inputs(N, C), inputs(C), inputs(C)
    dy, above = gradient(N, C), gradient(N, C)
    residual = x + branch
    residual.retain_grad()
    y = F.layer_norm(residual, (C,), w, b, eps)
    ((y * dy).sum() + (residual * above).sum()).backward()
    save(group, x=x, branch=branch, w=w, b=b, dy=dy, above=above, residual=residual, y=y)
    save_grads(group, residual=residual, w=w, b=b)


def matmul(group):
    """y = x w^T + b, act = gelu(y), once with the gradient at y and once at act."""
    N, C, OC = 9, 19, 23
    x, w, b, dy = inputs(N, C), inputs(OC, C), inputs(OC), gradient(N, OC)
    y = F.linear(x, w, b)
    y.backward(dy, retain_graph=True)
    save(group, x=x, w=w, b=b, dy=dy, y=y)
    save_grads(group, x=x, w=w, b=b)

    # The input of the layer as the GELU of what is before it.
    pre = inputs(N, C)
    F.linear(F.gelu(pre, approximate="tanh"), w, b).backward(dy)
    save(group, act=F.gelu(y, approximate="tanh"), pre=pre)
    save_grads(group, pre=pre)


def gelu(group):
    x = torch.linspace(-12, 12, 97).float().double().requires_grad_()
    dy = gradient(97)
    y = F.gelu(x, approximate="tanh")
    y.backward(dy)
    save(group, x=x, dy=dy, y=y)
    save_grads(group, x=x)


def attention(group, B, T, H, KV, HS):
    qkv = inputs(B, T, (H + 2 * KV) * HS)
    dout = gradient(B, T, H * HS)
    q, k, v = qkv.split([H * HS, KV * HS, KV * HS], dim=2)
    q = q.view(B, T, H, HS).transpose(1, 2)
    k = k.view(B, T, KV, HS).transpose(1, 2).repeat_interleave(H // KV, dim=1)
    v = v.view(B, T, KV, HS).transpose(1, 2).repeat_interleave(H // KV, dim=1)
    s = q @ k.transpose(2, 3) / HS**0.5
    s = s.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))
    out = (s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, H * HS)
    out.backward(dout)
    save(group, qkv=qkv, dout=dout, out=out, lse=s.logsumexp(-1))
    save_grads(group, qkv=qkv)


def classifier(group):
    N, V = 7, 29
    logits = inputs(N, V, scale=3.0)
    targets = torch.tensor([0, V - 1, -1, 5, 5, 13, -1])
    losses = F.cross_entropy(logits, targets, ignore_index=-1, reduction="none")
    (losses.sum() / 5).backward()
    save(group, logits=logits, targets=targets, losses=losses)
    save_grads(group, logits=logits)


def adamw(group):
    """Three steps with clipped gradients; the parameters and moments after each."""
    n, steps = 37, 3
    p = torch.nn.Parameter(torch.randn(n).float().double())
    hyper = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    # The hyperparameters as the floats that the op is given.
    exact = lambda value: float(torch.tensor(value, dtype=torch.float32))
    optimizer = torch.optim.AdamW(
        [p], lr=exact(hyper["lr"]), betas=tuple(exact(b) for b in hyper["betas"]),
        eps=exact(hyper["eps"]), weight_decay=exact(hyper["weight_decay"]))
    grads = torch.randn(steps, n).float().double()
    save(group, p0=p, grads=grads)
    after = {"p": [], "m": [], "v": []}
    for g in grads:
        p.grad = 0.5 * g
        optimizer.step()
        state = optimizer.state[p]
        for name, t in (("p", p), ("m", state["exp_avg"]), ("v", state["exp_avg_sq"])):
            after[name].append(t.detach().clone())
    save(group, **{name: torch.stack(values) for name, values in after.items()})


def rmsnorm(group):
    """y = rmsnorm(x + branch), as LLaMA has it."""
    N, C, eps = 5, 37, 1e-5
    x, branch, w = inputs(N, C), inputs(N, C), inputs(C)
    dy, above = gradient(N, C), gradient(N, C)
    residual = x + branch
    residual.retain_grad()
    y = residual * (residual.square().mean(-1, keepdim=True) + eps).rsqrt() * w
    ((y * dy).sum() + (residual * above).sum()).backward()
    save(group, x=x, branch=branch, w=w, dy=dy, above=above, residual=residual, y=y)
    save_grads(group, residual=residual, w=w)


def swiglu(group):
    N, F_ = 5, 13
    x, dy = inputs(N, 2 * F_, scale=3.0), gradient(N, F_)
    gate, up = x.chunk(2, dim=-1)
    y = F.silu(gate) * up
    y.backward(dy)
    save(group, x=x, dy=dy, y=y)
    save_grads(group, x=x)


def turned(x, theta, stretch, halves):
    """Rotary positions of (B, T, heads, HS), by complex numbers: independent of the op's way."""
    HS = x.shape[-1]
    f = theta ** (-torch.arange(0, HS, 2) / HS)
    if stretch:  # LLaMA 3.1's rule, as its config.json has it: (factor, low, high, old context)
        factor, low, high, old = stretch
        waves = 2 * torch.pi / f
        smooth = (old / waves - low) / (high - low)
        between = (1 - smooth) * f / factor + smooth * f
        f = torch.where(waves > old / low, f / factor, torch.where(waves < old / high, f, between))
    angle = torch.outer(torch.arange(x.shape[1]).double(), f)[None, :, None, :]
    pairs = torch.stack(x.chunk(2, dim=-1), -1) if halves else x.unflatten(-1, (HS // 2, 2))
    z = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angle), angle))
    return torch.cat((z[..., 0], z[..., 1]), -1) if halves else z.flatten(-2)


def rope(group):
    """Both orders of pairs, without and with stretched waves; queries and keys alone are turned."""
    B, T, H, KV, HS = 2, 7, 3, 1, 8
    for name, halves, stretch in (("half", True, None), ("interleaved", False, None),
                                  ("stretched", True, (8.0, 1.0, 4.0, 16.0))):
        qkv, dy = inputs(B, T, H + 2 * KV, HS), gradient(B, T, H + 2 * KV, HS)
        y = torch.cat((turned(qkv[:, :, :H + KV], 100.0, stretch, halves), qkv[:, :, H + KV:]), 2)
        y.backward(dy)
        part = group.create_group(name)
        save(part, qkv=qkv, dy=dy, y=y)
        save_grads(part, qkv=qkv)


def qknorm(group):
    """Each head of q and k divided by its root mean square, as Qwen 3 has it."""
    N, H, KV, HS, eps = 6, 3, 2, 10, 1e-6
    qkv, qw, kw, dy = inputs(N, H + 2 * KV, HS), inputs(HS), inputs(HS), gradient(N, H + 2 * KV, HS)
    q, k, v = qkv.split([H, KV, KV], dim=1)
    norm = lambda x, w: x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * w
    y = torch.cat((norm(q, qw), norm(k, kw), v), 1)
    y.backward(dy)
    save(group, qkv=qkv, qw=qw, kw=kw, dy=dy, y=y)
    save_grads(group, qkv=qkv, qw=qw, kw=kw)


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "dev/reference/ops.h5"
    with h5py.File(path, "w", libver="latest") as file:
        for op in (embedding, layernorm, matmul, gelu, classifier, adamw):
            op(file.create_group(op.__name__))
        attention(file.create_group("attention"), B=2, T=9, H=4, KV=2, HS=5)
        attention(file.create_group("attention_tiles"), B=1, T=67, H=2, KV=1, HS=7)
        for op in (rmsnorm, swiglu, rope, qknorm):
            op(file.create_group(op.__name__))
        attention(file.create_group("attention_grouped"), B=1, T=13, H=6, KV=2, HS=8)


main()
