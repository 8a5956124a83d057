"""The engine: the user's own model runs unmodified while the rules change how its output flows back.

The propagation mode and what it consists of:

- `propagation`: the torch function mode that intercepts every call and applies the rules.
- `liveness`, `in_place_writes`, `saved_tensors`, `graph_exits`, `refusals`: tensors that depend on the input, writes to
  their memory, values that leave the graph, and operations that relevance cannot pass.
- `lineage`, `tensor_notes`: recognise activations, softmax and norms that a model writes out in several calls.
- `expanded_calls`: operations that run as calls of simpler ones.
- `double_precision`: the mode before it that gives a model in float32 calls in float64.

Where scores are read:

- `leaves`, `units`: where each input enters, and the proof that the rows of a hidden state are its units.
- `survey`, `placement`: the reading plan of a model, made once; `sources`: the live tensors by that plan.

What observes a pass (`observer`): `capture` and `captured_maps` (attention maps, block inputs), `block_states` and
`carried_rows` (relevance at every block, and whose rows these are), `ledger`, `checkpoint`, `decompose` (attention
sub-blocks). `module_stack` says which module is running.

The passes themselves: `model_call`, `passes` and `backward_pass` (with a backward pass), `forward_passes` (without),
`prediction` (the model alone), `flow` (their result), `pass_cache`. `finite_weights` looks for NaN before any of them.
"""
