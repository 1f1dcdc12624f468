// NVRTC, beside which the source of each kernel is kept for the driver, and what it makes of it is assembled.
#include <dlfcn.h>
#include <nvrtc.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

const std::string& home = *new std::string(getenv("EMULATOR"));

template <class F> F nvidia(F*, const char* name) {
    static void* library = dlopen((home + "/nvidia/lib/libnvrtc.so.13").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "emulator: %s\n", dlerror());
        abort();
    }
    return reinterpret_cast<F>(dlsym(library, name));
}
#define NVIDIA(function) nvidia((decltype(&function)*)nullptr, #function)

struct Program {
    nvrtcProgram inner;
    std::string source, name, ptx;
};

Program* of(nvrtcProgram program) { return reinterpret_cast<Program*>(program); }

// FNV-1a, by which sources are told apart.
std::string digest(const std::string& text) {
    uint64_t hash = 0xcbf29ce484222325;
    for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
    char name[17];
    snprintf(name, sizeof name, "%016lx", hash);
    return name;
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

void write(const std::string& path, const std::string& text) {
    FILE* file = fopen(path.c_str(), "w");
    if (!file || fwrite(text.data(), 1, text.size(), file) != text.size() || fclose(file)) {
        perror(path.c_str());
        abort();
    }
}

void assemble(const Program& program, const std::string& architecture) {
    std::string base = home + "/kernels/" + program.name;
    if (exists(base + ".cubin")) return;
    write(base + ".ptx", program.ptx);
    std::string command =
        home + "/nvidia/bin/ptxas -arch=" + architecture + " -o " + base + ".cubin " + base + ".ptx > " + base + ".ptxas 2>&1";
    if (system(command.c_str())) fprintf(stderr, "emulator: NVIDIA's assembler refuses a kernel; see %s.ptxas\n", base.c_str());
}

} // namespace

extern "C" {

const char* nvrtcGetErrorString(nvrtcResult result) { return NVIDIA(nvrtcGetErrorString)(result); }

nvrtcResult nvrtcVersion(int* major, int* minor) { return NVIDIA(nvrtcVersion)(major, minor); }

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char* name, int headers, const char* const* texts,
                               const char* const* names) {
    auto* made = new Program{nullptr, source, digest(source), ""};
    *program = reinterpret_cast<nvrtcProgram>(made);
    return NVIDIA(nvrtcCreateProgram)(&made->inner, source, name, headers, texts, names);
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
    nvrtcResult result = NVIDIA(nvrtcDestroyProgram)(&of(*program)->inner);
    delete of(*program);
    *program = nullptr;
    return result;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
    Program& own = *of(program);
    write(home + "/kernels/" + own.name + ".cu", own.source);
    nvrtcResult result = NVIDIA(nvrtcCompileProgram)(own.inner, count, options);
    if (result != NVRTC_SUCCESS) {
        fprintf(stderr, "emulator: NVRTC refuses %s/kernels/%s.cu\n", home.c_str(), own.name.c_str());
        return result;
    }
    size_t size = 0;
    NVIDIA(nvrtcGetPTXSize)(own.inner, &size);
    own.ptx.resize(size);
    NVIDIA(nvrtcGetPTX)(own.inner, own.ptx.data());
    own.ptx.resize(strlen(own.ptx.c_str()));
    std::string architecture = "sm_90a", option = "--gpu-architecture=";
    for (int i = 0; i < count; i++) {
        if (!strncmp(options[i], option.c_str(), option.size())) architecture = options[i] + option.size();
    }
    assemble(own, architecture);
    // By which the driver finds the source again.
    own.ptx += "\n// source: " + own.name + "\n";
    return result;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* size) {
    return NVIDIA(nvrtcGetProgramLogSize)(of(program)->inner, size);
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) { return NVIDIA(nvrtcGetProgramLog)(of(program)->inner, log); }

nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t* size) {
    *size = of(program)->ptx.size() + 1;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* ptx) {
    memcpy(ptx, of(program)->ptx.c_str(), of(program)->ptx.size() + 1);
    return NVRTC_SUCCESS;
}
}
