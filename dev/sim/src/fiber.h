// Stacks that can be switched: each CUDA thread that blocks keeps one.
#pragma once
#include <cstddef>

namespace cusim {

struct Stack {
    void* sp = nullptr;  // saved stack pointer while it does not run
    char* low = nullptr;
    size_t bytes = 0;
    void* fake = nullptr;   // the address sanitizer's fake stack
    Stack* next = nullptr;  // list of idle ones
};

// A fresh stack on which entry() starts at the first switch to it; entry never returns.
Stack* stack_create(void (*entry)());
// Saves the running context in *from, resumes *to. The sanitizers are told; tsan_fiber is the
// identity that the thread sanitizer shall know the resumed code by.
void stack_switch(Stack* from, Stack* to, void* tsan_fiber);
// To be called first on a stack that starts.
void stack_started();
// Makes *stack describe the calling OS thread, as the place to come back to.
void stack_adopt(Stack* stack);

bool stack_holds(const void* p);        // p lies on one of the stacks
bool stack_guard_holds(const void* p);  // p lies on a guard page below one
}  // namespace cusim
