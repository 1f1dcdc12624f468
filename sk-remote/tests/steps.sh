# Functions shared by vllm.sh and sglang.sh, which source this file with FOLDER as their first
# argument.

folder=${1:?name a folder for the Python environment and the model}
port=${PORT:-8123}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
model="$folder/model"
cd "$(dirname "$0")/../.."

# Exports the model that ships, and records steps with it.
record() {
    [ -d "$model/backbone" ] || cargo run --release -p sk-bench -- export "$model"
    rm -rf "$folder/traces"
    mkdir "$folder/traces"
    place=0
    while read -r prompt; do
        place=$((place + 1))
        echo "$prompt" > "$folder/traces/$place.txt"
        cargo run --release -q -p sk-bench -- generate "$prompt" --device cpu --n 7 --span-tokens 8 --seed $place --quiet \
            --trace "$folder/traces/$place.jsonl" > /dev/null
    done <<'PROMPTS'
How do I apologise to a friend?
What should I do before I lend my bicycle?
How do I clean a window?
Is it safe to mix two cleaners?
How can I sleep better?
Why is my bread flat?
How do I start to run?
What do I cook for six guests?
How do I write to my landlord?
Can I leave a candle alone?
How do I plan a picnic?
What do I pack for a weekend?
PROMPTS
    cargo build --release -p sk-remote --example parity
}

# Compares the steps with the server that was started last: compare ADDRESS LOG.
compare() {
    server=$!
    trap 'kill "$server" 2>/dev/null' EXIT
    health="http://127.0.0.1:$port/health"
    until "$folder/venv/bin/python" -c "import urllib.request; urllib.request.urlopen('$health')" 2>/dev/null; do
        kill -0 "$server" 2>/dev/null || { echo "the server did not start; see $2" >&2; exit 1; }
        sleep 2
    done
    cargo run --release -p sk-remote --example parity -- "$1" "$folder/traces"
}
