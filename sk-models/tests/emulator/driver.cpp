// A CUDA driver whose device is the processor. Everything is done when it is asked for, so that streams have nothing to wait for.
#include <cuda.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

struct Triple {
    unsigned x, y, z;
};

extern "C" {
Triple emulated_thread, emulated_block, emulated_block_size, emulated_grid;
}

namespace {

// Whether kernels do nothing: what is left of a program's time is what it takes to ask for them.
const bool idle = getenv("EMULATOR_IDLE") && *getenv("EMULATOR_IDLE");

constexpr unsigned WARP = 32, MOST_THREADS = 1024;
constexpr size_t PAGE = 4096, STACK = 1 << 20, MOST_SHARED = 232448;

std::recursive_mutex device;
using Lock = std::lock_guard<std::recursive_mutex>;

// ---- The threads of a block: fibers that run until they wait.

enum class State { Running, AtBlockBarrier, AtWarpBarrier, Showing, Done };

struct Fiber {
    void* stack_pointer;
    State state;
    char* stack;
    Triple index;
    // What it shows, where, and to whom.
    uint64_t shown;
    unsigned place, there;
};

// What a thread may still use while the program ends is never destroyed.
std::vector<Fiber>& fibers = *new std::vector<Fiber>(MOST_THREADS);
unsigned threads;
Fiber* current;
void* scheduler;
// What the lanes of each warp showed last.
uint64_t seen[MOST_THREADS / WARP][WARP];
void (*entry)(void**);
void** entry_arguments;

extern "C" void emulated_switch(void** from, void* to);
asm(R"(
.text
.globl emulated_switch
emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

[[noreturn]] void run_thread() {
    entry(entry_arguments);
    current->state = State::Done;
    emulated_switch(&current->stack_pointer, scheduler);
    abort();
}

void start(Fiber& fiber) {
    if (!fiber.stack) {
        void* stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED) abort();
        fiber.stack = static_cast<char*>(stack);
    }
    // As if it had been left before its first instruction: six registers, then where to return to.
    auto* top = reinterpret_cast<uint64_t*>(fiber.stack + STACK - 64);
    *--top = 0;
    *--top = reinterpret_cast<uint64_t>(&run_thread);
    for (int i = 0; i < 6; i++) *--top = 0;
    fiber.stack_pointer = top;
    fiber.state = State::Running;
}

void resume(Fiber& fiber) {
    current = &fiber;
    emulated_thread = fiber.index;
    emulated_switch(&scheduler, fiber.stack_pointer);
}

void wait(State state) {
    current->state = state;
    emulated_switch(&current->stack_pointer, scheduler);
}

unsigned position() { return unsigned(current - fibers.data()); }

// Lets go on what waits for its warp alone, where no lane of it runs any more. Lanes that took different ways go on one after another.
bool release_warp(unsigned warp) {
    unsigned first = warp * WARP, end = std::min(threads, first + WARP);
    Fiber* waiting = nullptr;
    for (unsigned i = first; i < end; i++) {
        Fiber& fiber = fibers[i];
        if (fiber.state == State::Running) return false;
        bool waits = fiber.state == State::AtWarpBarrier || fiber.state == State::Showing;
        if (waits && !waiting) waiting = &fiber;
    }
    if (!waiting) return false;
    State state = waiting->state;
    unsigned place = waiting->place, there = 0;
    for (unsigned i = first; i < end; i++) {
        bool alike = fibers[i].state == state && (state == State::AtWarpBarrier || fibers[i].place == place);
        if (alike) there |= 1u << (i - first);
    }
    for (unsigned i = first; i < end; i++) {
        if (!(there >> (i - first) & 1)) continue;
        seen[warp][i - first] = fibers[i].shown;
        fibers[i].there = there;
        fibers[i].state = State::Running;
    }
    return true;
}

// Whether the last thread goes first. What lacks a barrier comes out differently one way or the other.
const bool backwards = getenv("EMULATOR_BACKWARDS") && *getenv("EMULATOR_BACKWARDS");

// The i-th of `count` in the order in which they run.
unsigned in_turn(unsigned i, unsigned count) { return backwards ? count - 1 - i : i; }

void run_block() {
    auto all = [](auto what) { return std::all_of(fibers.begin(), fibers.begin() + threads, what); };
    for (unsigned i = 0; i < threads; i++) start(fibers[i]);
    for (;;) {
        bool moved = false;
        for (unsigned i = 0; i < threads; i++) {
            Fiber& fiber = fibers[in_turn(i, threads)];
            if (fiber.state != State::Running) continue;
            resume(fiber);
            moved = true;
        }
        for (unsigned warp = 0; warp * WARP < threads; warp++) moved |= release_warp(warp);
        if (moved) continue;
        if (all([](const Fiber& fiber) { return fiber.state == State::Done; })) return;
        for (unsigned i = 0; i < threads; i++) {
            if (fibers[i].state == State::AtBlockBarrier) fibers[i].state = State::Running;
        }
    }
}

// ---- Kernels.

constexpr unsigned MOST_ARGUMENTS = 1024;

struct Function {
    void (*call)(void**);
    // The lengths of its arguments.
    std::vector<size_t> lengths;
    bool has_barriers;
    std::string name, file;
    uint64_t launches = 0;
    double seconds = 0;
};

struct Module {
    void* library;
    // What its source is called.
    std::string file;
};

// A kernel to be run over a grid of blocks.
struct Launch {
    Function* function;
    Triple grid, block;
    // Its arguments, one after the other.
    std::vector<std::vector<char>> arguments;
};

// Launches that were noted and not done, in their order.
struct Graph {
    std::vector<Launch> launches;
};

// What a stream notes while it records.
std::map<CUstream, Graph>& recorded = *new std::map<CUstream, Graph>;

bool recording() { return !recorded.empty(); }

std::string in_kernels(const std::string& file) { return std::string(getenv("EMULATOR")) + "/kernels/" + file; }

std::vector<Function*>& functions = *new std::vector<Function*>;

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

std::string read_file(const std::string& path) {
    std::string text;
    if (FILE* file = fopen(path.c_str(), "r")) {
        char part[65536];
        while (size_t count = fread(part, 1, sizeof part, file)) text.append(part, count);
        fclose(file);
    }
    return text;
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// The kernel for the processor; none where it uses what the processor has not.
void* compiled(const std::string& base) {
    if (!exists(base + ".so")) {
        std::string command = std::string(getenv("EMULATOR_SOURCE")) + "/compile.sh " + base + " > " + base + ".log 2>&1";
        if (system(command.c_str())) {
            fprintf(stderr, "emulator: a kernel does not compile for the processor: %s.log\n", base.c_str());
            return nullptr;
        }
    }
    void* library = dlopen((base + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "emulator: %s\n", dlerror());
        abort();
    }
    return library;
}

// ---- Memory.

std::map<CUdeviceptr, size_t>& blocks = *new std::map<CUdeviceptr, size_t>;
size_t allocated = 0, most_allocated = 0;

// Whether a stream records; the driver refuses then whatever is not a launch, and spoils the recording.
bool recording();

CUresult allocate(CUdeviceptr* out, size_t bytes) {
    Lock lock(device);
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    if (recording()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    size_t size = (bytes + PAGE - 1) / PAGE * PAGE;
    void* memory = mmap(nullptr, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    mprotect(static_cast<char*>(memory) + size, PAGE, PROT_NONE);
    // Reads as NaN until it is written; of large blocks no more than what tests use. Where nothing is ever written, zero does less harm.
    if (!idle) memset(memory, 0xff, std::min(size, size_t(64) << 20));
    *out = reinterpret_cast<CUdeviceptr>(memory);
    blocks[*out] = size;
    allocated += size;
    most_allocated = std::max(most_allocated, allocated);
    return CUDA_SUCCESS;
}

CUresult release(CUdeviceptr memory) {
    Lock lock(device);
    auto block = blocks.find(memory);
    if (block == blocks.end()) return CUDA_ERROR_INVALID_VALUE;
    munmap(reinterpret_cast<void*>(memory), block->second + PAGE);
    allocated -= block->second;
    blocks.erase(block);
    return CUDA_SUCCESS;
}

struct Report {
    ~Report() {
        if (!getenv("EMULATOR_REPORT") || functions.empty()) return;
        auto slower = [](const Function* a, const Function* b) { return a->seconds > b->seconds; };
        std::sort(functions.begin(), functions.end(), slower);
        fprintf(stderr, "emulator: %zu kernels, at most %zu bytes\n", functions.size(), most_allocated);
        for (const Function* function : functions) {
            const char* note = function->call ? "" : " (did nothing)";
            fprintf(stderr, "%10.3f s %8lu times  %s.cu  %s%s\n", function->seconds, function->launches, function->file.c_str(),
                    function->name.c_str(), note);
        }
    }
} report;

void run(Function& function, Triple grid, Triple block, void** arguments) {
    function.launches++;
    if (idle) return;
    double start = now();
    threads = block.x * block.y * block.z;
    emulated_grid = grid;
    emulated_block_size = block;
    entry = function.call;
    entry_arguments = arguments;
    for (unsigned i = 0; i < threads; i++) fibers[i].index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
    uint64_t count = uint64_t(grid.x) * grid.y * grid.z;
    for (uint64_t turn = 0; turn < count; turn++) {
        uint64_t place = backwards ? count - 1 - turn : turn;
        emulated_block = {unsigned(place % grid.x), unsigned(place / grid.x % grid.y), unsigned(place / grid.x / grid.y)};
        if (function.has_barriers) {
            run_block();
            continue;
        }
        for (unsigned i = 0; i < threads; i++) {
            emulated_thread = fibers[in_turn(i, threads)].index;
            function.call(arguments);
        }
    }
    function.seconds += now() - start;
}

template <class T> T handle() {
    static uintptr_t last = 0x1000;
    Lock lock(device);
    return reinterpret_cast<T>(last += 16);
}

} // namespace

extern "C" {

// ---- What kernels call.

void emulated_block_barrier() { wait(State::AtBlockBarrier); }
void emulated_warp_barrier() { wait(State::AtWarpBarrier); }
unsigned emulated_lane() { return position() % WARP; }

unsigned emulated_active() {
    unsigned first = position() / WARP * WARP, active = 0;
    for (unsigned i = first; i < std::min(threads, first + WARP); i++) {
        if (fibers[i].state != State::Done) active |= 1u << (i - first);
    }
    return active;
}

unsigned emulated_show(uint64_t number, unsigned place) {
    current->shown = number;
    current->place = place;
    wait(State::Showing);
    return current->there;
}

uint64_t emulated_shown(unsigned lane) { return seen[position() / WARP][lane]; }

// ---- The driver, as far as CubeCL asks for it.

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }

CUresult cuDriverGetVersion(int* version) {
    // No compiler of this generation is later.
    *version = 13990;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
    static char text[32];
    snprintf(text, sizeof text, "CUDA_ERROR_%d", int(error));
    *name = text;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }

CUresult cuDeviceGetCount(int* count) {
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    *device = ordinal;
    return ordinal ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice) {
    snprintf(name, size, "the processor");
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* name, int size, CUdevice) {
    snprintf(name, size, "0000:01:00.0");
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice) {
    memset(uuid, 1, sizeof *uuid);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
    *bytes = size_t(80) << 30;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t* free, size_t* total) {
    Lock lock(device);
    *total = size_t(80) << 30;
    *free = *total - allocated;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
    const char* name = getenv("EMULATOR_ARCH");
    int architecture = name ? atoi(name) : 80;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = architecture / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = architecture % 10; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = WARP; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 49152; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = MOST_SHARED; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: *value = MOST_THREADS; break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: *value = 64; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *value = 2147483647; break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: *value = 65535; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *value = 1; break;
    default: *value = 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
    static CUcontext only = handle<CUcontext>();
    *context = only;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext* context) { return cuDevicePrimaryCtxRetain(context, 0); }
CUresult cuCtxSynchronize() { return CUDA_SUCCESS; }

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    *least = *greatest = 0;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* stream, unsigned) {
    *stream = handle<CUstream>();
    return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned, int) { return cuStreamCreate(stream, 0); }
CUresult cuStreamDestroy(CUstream) { return CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream stream) { return recorded.count(stream) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS; }
CUresult cuStreamQuery(CUstream) { return CUDA_SUCCESS; }
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned) { return CUDA_SUCCESS; }

CUresult cuEventCreate(CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(new double(0));
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream) {
    Lock lock(device);
    *reinterpret_cast<double*>(event) = now();
    return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent) { return CUDA_SUCCESS; }
CUresult cuEventQuery(CUevent) { return CUDA_SUCCESS; }

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
    *milliseconds = float((*reinterpret_cast<double*>(end) - *reinterpret_cast<double*>(start)) * 1e3);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
    delete reinterpret_cast<double*>(event);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* memory, size_t bytes) { return allocate(memory, bytes); }
CUresult cuMemAllocAsync(CUdeviceptr* memory, size_t bytes, CUstream) { return allocate(memory, bytes); }
CUresult cuMemFree(CUdeviceptr memory) { return release(memory); }
CUresult cuMemFreeAsync(CUdeviceptr memory, CUstream) { return release(memory); }

CUresult cuMemAllocHost(void** memory, size_t bytes) {
    *memory = malloc(bytes);
    return *memory ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFreeHost(void* memory) {
    free(memory);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream) {
    Lock lock(device);
    if (recording()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    memcpy(reinterpret_cast<void*>(to), from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream) {
    Lock lock(device);
    if (recording()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (idle) {
        memset(to, 0, bytes);
    } else {
        memcpy(to, reinterpret_cast<void*>(from), bytes);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
    Lock lock(device);
    if (recording()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* copy, CUstream) {
    Lock lock(device);
    if (recording()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    bool from_host = copy->srcMemoryType == CU_MEMORYTYPE_HOST, to_host = copy->dstMemoryType == CU_MEMORYTYPE_HOST;
    auto* from = static_cast<const char*>(from_host ? copy->srcHost : reinterpret_cast<void*>(copy->srcDevice));
    auto* to = static_cast<char*>(to_host ? copy->dstHost : reinterpret_cast<void*>(copy->dstDevice));
    from += copy->srcY * copy->srcPitch + copy->srcXInBytes;
    to += copy->dstY * copy->dstPitch + copy->dstXInBytes;
    for (size_t row = 0; row < copy->Height; row++) {
        memcpy(to + row * copy->dstPitch, from + row * copy->srcPitch, copy->WidthInBytes);
    }
    return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                                const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    Lock lock(device);
    const char* mark = strstr(static_cast<const char*>(image), "// source: ");
    if (!mark) return CUDA_ERROR_INVALID_PTX;
    std::string file(mark + 11, 16);
    void* library = idle ? nullptr : compiled(in_kernels(file));
    if (!idle && !library) return CUDA_ERROR_NOT_SUPPORTED;
    *module = reinterpret_cast<CUmodule>(new Module{library, file});
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    Lock lock(device);
    auto& own = *reinterpret_cast<Module*>(module);
    void* symbol = own.library ? dlsym(own.library, "emulated_entry") : nullptr;
    std::string source = read_file(in_kernels(own.file) + ".cu");
    bool has_barriers = contains(source, "_sync") || contains(source, "__sync");
    std::vector<size_t> lengths(MOST_ARGUMENTS);
    auto* count = reinterpret_cast<unsigned (*)(size_t*)>(own.library ? dlsym(own.library, "emulated_lengths") : nullptr);
    lengths.resize(count ? count(lengths.data()) : 0);
    auto* made = new Function{reinterpret_cast<void (*)(void**)>(symbol), lengths, has_barriers, name, own.file};
    functions.push_back(made);
    *function = reinterpret_cast<CUfunction>(made);
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute attribute, int value) {
    bool too_much = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && size_t(value) > MOST_SHARED;
    return too_much ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                        unsigned block_z, unsigned shared, CUstream stream, void** arguments, void**) {
    Lock lock(device);
    auto& function = *reinterpret_cast<Function*>(kernel);
    unsigned count = block_x * block_y * block_z;
    bool fits = grid_x && grid_y && grid_z && grid_y <= 65535 && grid_z <= 65535 && count && count <= MOST_THREADS;
    if (!fits || shared > MOST_SHARED) return CUDA_ERROR_INVALID_VALUE;
    Triple grid = {grid_x, grid_y, grid_z}, block = {block_x, block_y, block_z};
    auto recording = recorded.find(stream);
    if (recording == recorded.end()) {
        run(function, grid, block, arguments);
        return CUDA_SUCCESS;
    }
    Launch launch{&function, grid, block, {}};
    for (size_t i = 0; i < function.lengths.size(); i++) {
        auto* argument = static_cast<const char*>(arguments[i]);
        launch.arguments.emplace_back(argument, argument + function.lengths[i]);
    }
    recording->second.launches.push_back(std::move(launch));
    return CUDA_SUCCESS;
}

// ---- Graphs: what a stream was asked for, done again.

// What goes wrong with recordings: none is made, or it does nothing.
enum class Spoils { Nothing, End, Launch };

Spoils spoiled() {
    const char* what = getenv("EMULATOR_SPOIL");
    if (!what) return Spoils::Nothing;
    return !strcmp(what, "end") ? Spoils::End : Spoils::Launch;
}

const Spoils spoils = spoiled();

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
    Lock lock(device);
    return recorded.emplace(stream, Graph{}).second ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    Lock lock(device);
    auto recording = recorded.find(stream);
    if (recording == recorded.end()) return CUDA_ERROR_ILLEGAL_STATE;
    Graph* noted = new Graph(std::move(recording->second));
    recorded.erase(recording);
    *graph = reinterpret_cast<CUgraph>(noted);
    if (spoils != Spoils::End) return CUDA_SUCCESS;
    delete noted;
    *graph = nullptr;
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
    *count = reinterpret_cast<Graph*>(graph)->launches.size();
    // Which is which is all the same.
    if (nodes) std::fill(nodes, nodes + *count, handle<CUgraphNode>());
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode, CUgraphNodeType* type) {
    *type = CU_GRAPH_NODE_TYPE_KERNEL;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* made, CUgraph graph, unsigned long long) {
    *made = reinterpret_cast<CUgraphExec>(new Graph(*reinterpret_cast<Graph*>(graph)));
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
    delete reinterpret_cast<Graph*>(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec graph) { return cuGraphDestroy(reinterpret_cast<CUgraph>(graph)); }
CUresult cuGraphUpload(CUgraphExec, CUstream) { return CUDA_SUCCESS; }

CUresult cuGraphLaunch(CUgraphExec graph, CUstream) {
    Lock lock(device);
    if (spoils == Spoils::Launch) return CUDA_SUCCESS;
    for (Launch& launch : reinterpret_cast<Graph*>(graph)->launches) {
        std::vector<void*> arguments;
        for (auto& argument : launch.arguments) arguments.push_back(argument.data());
        run(*launch.function, launch.grid, launch.block, arguments.data());
    }
    return CUDA_SUCCESS;
}

// Under the name of earlier headers too.
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}
}
