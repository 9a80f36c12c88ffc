#include "llmc/ops/cudnn_plan.h"

#include "llmc/core/check.h"

#ifdef LLMC_CUDNN
#include <cudnn_backend.h>
#include <dlfcn.h>

#include <algorithm>
#include <cassert>
#include <optional>
#include <type_traits>

namespace cudnn {
namespace {

// ---- the library, found at run time: one table of the functions that are used
struct Library {
    decltype(&cudnnGetVersion) GetVersion;
    decltype(&cudnnGetErrorString) GetErrorString;
    decltype(&cudnnGetLastErrorString) GetLastErrorString;
    decltype(&cudnnCreate) Create;
    decltype(&cudnnSetStream) SetStream;
    decltype(&cudnnBackendCreateDescriptor) BackendCreateDescriptor;
    decltype(&cudnnBackendDestroyDescriptor) BackendDestroyDescriptor;
    decltype(&cudnnBackendSetAttribute) BackendSetAttribute;
    decltype(&cudnnBackendGetAttribute) BackendGetAttribute;
    decltype(&cudnnBackendFinalize) BackendFinalize;
    decltype(&cudnnBackendExecute) BackendExecute;
};

// Plans for a described device came with 9.11; the sum over keys is zeroed by the library
// since 9.6.
constexpr size_t kOldest = 91100;
std::string version_text(size_t v) {
    return str(v / 10000, ".", v / 100 % 100, ".", v % 100);
}

Library open_library() {
    const std::string name = str("libcudnn.so.", CUDNN_MAJOR);
    std::string reason;
    void* handle = nullptr;
    for (const char* folder : {"", "/usr/local/cuda/lib64/"}) {
        if ((handle = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL))) break;
        const char* error = dlerror();
        if (reason.empty()) reason = error ? error : "unknown";
    }
    const char* hint =
        "install cuDNN 9, or name its folder in LD_LIBRARY_PATH; --attention own needs none";
    CHECK(handle, Exit::Resource, "cannot load cuDNN", reason, name, hint);

    Library lib{};
    const auto find = [&](auto& function, const char* symbol) {
        void* const found = dlsym(handle, symbol);
        CHECK(found, Exit::Resource, "cuDNN lacks a function", symbol, "", hint);
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
    };
#define FIND(function) find(lib.function, "cudnn" #function)
    FIND(GetVersion);
    FIND(GetErrorString);
    FIND(GetLastErrorString);
    FIND(Create);
    FIND(SetStream);
    FIND(BackendCreateDescriptor);
    FIND(BackendDestroyDescriptor);
    FIND(BackendSetAttribute);
    FIND(BackendGetAttribute);
    FIND(BackendFinalize);
    FIND(BackendExecute);
#undef FIND
    const size_t version = lib.GetVersion();
    CHECK(version >= kOldest, Exit::Resource, "cuDNN is too old", version_text(version),
          version_text(kOldest) + " or later", hint);
    return lib;
}
const Library& library() {
    static const Library lib = open_library();
    return lib;
}

std::string explain(cudnnStatus_t status) {
    char text[1024] = "";
    library().GetLastErrorString(text, sizeof text);
    return str(library().GetErrorString(status), *text ? ": " : "", text);
}

#define CUDNN_CHECK(call)                                                                   \
    do {                                                                                    \
        const cudnnStatus_t status_ = library().call;                                       \
        CHECK(status_ == CUDNN_STATUS_SUCCESS, Exit::Resource, "cuDNN call failed: " #call, \
              explain(status_));                                                            \
    } while (0)

// The library's state for the GPU that this process uses.
cudnnHandle_t handle_here() {
    static const cudnnHandle_t handle = [] {
        cudnnHandle_t h = nullptr;
        CUDNN_CHECK(Create(&h));
        return h;
    }();
    return handle;
}

}  // namespace

bool built() {
    return true;
}
std::string load() {
    return version_text(library().GetVersion());
}

// ---- descriptors
class Descriptor {
  public:
    explicit Descriptor(cudnnBackendDescriptorType_t type) {
        CUDNN_CHECK(BackendCreateDescriptor(type, &handle_));
    }
    Descriptor(Descriptor&& other) { std::swap(handle_, other.handle_); }
    Descriptor& operator=(Descriptor&& other) {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Descriptor() {
        if (handle_) library().BackendDestroyDescriptor(handle_);
    }
    cudnnBackendDescriptor_t get() const { return handle_; }

    void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
             const void* values) {
        CUDNN_CHECK(BackendSetAttribute(handle_, name, type, count, values));
    }
    void set(cudnnBackendAttributeName_t name, const Descriptor& value) {
        set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.handle_);
    }
    void set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
        set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
    }
    void set(cudnnBackendAttributeName_t name, int64_t value) {
        set(name, CUDNN_TYPE_INT64, 1, &value);
    }
    void set(cudnnBackendAttributeName_t name, bool value) {
        set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
    }
    void set(cudnnBackendAttributeName_t name, const std::vector<int64_t>& values) {
        set(name, CUDNN_TYPE_INT64, int64_t(values.size()), values.data());
    }
    // The number of values that there are; at most `most` are written to `values`.
    int64_t read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
                 void* values) const {
        int64_t count = 0;
        CUDNN_CHECK(BackendGetAttribute(handle_, name, type, most, &count, values));
        return count;
    }
    void finalize() { CUDNN_CHECK(BackendFinalize(handle_)); }
    // False where the library says that it does not support what is described; why: its words.
    bool finalize_if_supported(std::string& why) {
        const cudnnStatus_t status = library().BackendFinalize(handle_);
        if (status == CUDNN_STATUS_SUCCESS) return true;
        why = explain(status);
        // The thousands of a status are its kind; 3000: not supported.
        CHECK(int(status) / 1000 == 3, Exit::Resource, "cuDNN call failed: BackendFinalize", why);
        return false;
    }

  private:
    cudnnBackendDescriptor_t handle_ = nullptr;
};

// ---- devices
Device::Device() : properties_(std::make_shared<Descriptor>(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)) {}
Device Device::this_one() {
    const cudnnHandle_t handle = handle_here();
    Device d;
    d.properties_->set(CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    d.properties_->finalize();
    return d;
}
Device Device::described(const std::string& json) {
    Device d;
    d.properties_->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                       int64_t(json.size()), json.data());
    d.properties_->finalize();
    return d;
}

// ---- a graph in the library's terms
namespace {

cudnnDataType_t data_type(Type t) {
    switch (t) {
        case Type::F32:
            return CUDNN_DATA_FLOAT;
        case Type::BF16:
            return CUDNN_DATA_BFLOAT16;
        case Type::I32:
            return CUDNN_DATA_INT32;
        case Type::Bool:
            return CUDNN_DATA_BOOLEAN;
    }
    return CUDNN_DATA_FLOAT;
}

Descriptor tensor_descriptor(int64_t unique_id, const TensorInfo& t) {
    Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, unique_id);
    d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(t.type));
    d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, t.shape);
    d.set(CUDNN_ATTR_TENSOR_STRIDES, t.strides);
    d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t(16));
    d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, t.where == TensorInfo::Temporary);
    d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, t.where == TensorInfo::Constant);
    d.finalize();
    return d;
}

std::optional<cudnnPointwiseMode_t> pointwise_mode(Op op) {
    switch (op) {
        case Op::Multiply:
            return CUDNN_POINTWISE_MUL;
        case Op::Add:
            return CUDNN_POINTWISE_ADD;
        case Op::Subtract:
            return CUDNN_POINTWISE_SUB;
        case Op::Divide:
            return CUDNN_POINTWISE_DIV;
        case Op::AtLeast:
            return CUDNN_POINTWISE_CMP_GE;
        case Op::Select:
            return CUDNN_POINTWISE_BINARY_SELECT;
        case Op::Exp:
            return CUDNN_POINTWISE_EXP;
        case Op::Log:
            return CUDNN_POINTWISE_LOG;
        case Op::Copy:
            return CUDNN_POINTWISE_IDENTITY;
        case Op::Index:
            return CUDNN_POINTWISE_GEN_INDEX;
        default:
            return {};
    }
}

// All sums and elementwise arithmetic in fp32.
Descriptor pointwise(const Step& step, const std::vector<Descriptor>& tensors) {
    const cudnnPointwiseMode_t mode = *pointwise_mode(step.op);
    Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    if (step.op == Op::Index) kind.set(CUDNN_ATTR_POINTWISE_AXIS, int64_t(step.axis));
    kind.finalize();
    Descriptor op(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensors[size_t(step.x)]);
    if (step.b != kNone) op.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensors[size_t(step.b)]);
    if (step.t != kNone) op.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensors[size_t(step.t)]);
    op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors[size_t(step.y)]);
    op.finalize();
    return op;
}

Descriptor matmul(const Step& step, const std::vector<Descriptor>& tensors) {
    Descriptor kind(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    kind.finalize();
    Descriptor op(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensors[size_t(step.x)]);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensors[size_t(step.b)]);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensors[size_t(step.y)]);
    op.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    op.finalize();
    return op;
}

Descriptor reduction(const Step& step, const std::vector<Descriptor>& tensors) {
    const cudnnReduceTensorOp_t how =
        step.op == Op::Max ? CUDNN_REDUCE_TENSOR_MAX : CUDNN_REDUCE_TENSOR_ADD;
    Descriptor kind(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
    kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    if (step.in_order) kind.set(CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, true);
    kind.finalize();
    Descriptor op(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensors[size_t(step.x)]);
    op.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensors[size_t(step.y)]);
    op.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    op.finalize();
    return op;
}

Descriptor view(const Step& step, const std::vector<Descriptor>& tensors) {
    Descriptor op(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    op.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensors[size_t(step.x)]);
    op.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensors[size_t(step.y)]);
    op.finalize();
    return op;
}

Descriptor operation(const Step& step, const std::vector<Descriptor>& tensors) {
    if (pointwise_mode(step.op)) return pointwise(step, tensors);
    if (step.op == Op::Matmul) return matmul(step, tensors);
    if (step.op == Op::View) return view(step, tensors);
    return reduction(step, tensors);
}

// The engine configurations that cuDNN proposes for the graph, best first.
std::vector<Descriptor> proposals(const Descriptor& graph, const Device& device,
                                  cudnnBackendHeurMode_t mode) {
    Descriptor query(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    query.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    query.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    query.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device.get());
    std::vector<Descriptor> found;
    std::string why;
    if (!query.finalize_if_supported(why)) return found;
    const auto results = CUDNN_ATTR_ENGINEHEUR_RESULTS;
    const int64_t count = query.read(results, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
    std::vector<cudnnBackendDescriptor_t> handles;
    for (int64_t i = 0; i < count; i++)
        handles.push_back(found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).get());
    const int64_t filled =
        query.read(results, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, handles.data());
    found.erase(found.begin() + filled, found.end());
    return found;
}

}  // namespace

// ---- plans
Plan::Plan(const Graph& graph, const Device& device)
    : constants_(std::make_shared<std::vector<float>>()) {
    std::vector<Descriptor> tensors, operations;
    for (size_t i = 0; i < graph.tensors.size(); i++) {
        const TensorInfo& t = graph.tensors[i];
        const int64_t unique_id = int64_t(i) + 1;
        tensors.push_back(tensor_descriptor(unique_id, t));
        if (t.where == TensorInfo::Memory) {
            names_.push_back(t.id);
            ids_.push_back(unique_id);
        } else if (t.where == TensorInfo::Constant) {
            constants_->push_back(t.value);
            constant_ids_.push_back(unique_id);
        }
    }
    std::vector<cudnnBackendDescriptor_t> handles;
    for (const Step& step : graph.steps)
        handles.push_back(operations.emplace_back(operation(step, tensors)).get());
    Descriptor whole(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    whole.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, int64_t(handles.size()),
              handles.data());
    whole.finalize();

    std::string why = "no engine";
    for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
        for (const Descriptor& config : proposals(whole, device, mode)) {
            plan_ = std::make_shared<Descriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
            plan_->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
            plan_->set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device.get());
            if (!plan_->finalize_if_supported(why)) continue;
            int64_t bytes = 0;
            plan_->read(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
            workspace_bytes_ = size_t(bytes);
            return;
        }
    fail(Exit::Usage, "cuDNN has no kernel for this", why, "", "--attention own");
}

void Plan::execute(const std::vector<Address>& addresses, void* workspace, void* stream) const {
    std::vector<int64_t> ids = constant_ids_;
    std::vector<void*> pointers;
    for (float& value : *constants_) pointers.push_back(&value);
    for (size_t i = 0; i < ids_.size(); i++) {
        const auto found = std::find_if(addresses.begin(), addresses.end(),
                                        [&](const Address& a) { return a.id == names_[i]; });
        assert(found != addresses.end());
        ids.push_back(ids_[i]);
        pointers.push_back(found->at);
    }
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, int64_t(pointers.size()),
             pointers.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    pack.finalize();
    CUDNN_CHECK(SetStream(handle_here(), static_cast<cudaStream_t>(stream)));
    CUDNN_CHECK(BackendExecute(handle_here(), plan_->get(), pack.get()));
}

}  // namespace cudnn

#else
namespace cudnn {

class Descriptor {};
bool built() {
    return false;
}
std::string load() {
    fail(Exit::Usage, "this train_gpt was built without cuDNN's headers");
}
Device::Device() {
    load();
}
Device Device::this_one() {
    return Device();
}
Device Device::described(const std::string&) {
    return Device();
}
Plan::Plan(const Graph&, const Device&) {}
void Plan::execute(const std::vector<Address>&, void*, void*) const {}

}  // namespace cudnn
#endif
