"""A program of a user, over the whole interface: it runs, and a strict checker finds no value of the type Any in it."""

import torch

import autograd_opt as ao
from autograd_opt import passes, verify

x: ao.CustomTensor = ao.tensor([1.0, 2.0])
y = ao.CustomTensor([[1.0]], dtype=torch.float64, requires_grad=False)
names: dict[str, torch.Tensor] = {"x": x}


def show(*values: object) -> None:
    """Use values."""


def f(a: torch.Tensor) -> torch.Tensor:
    return (a * a).sum()


def g(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a * b).sum()


graph = ao.AutogradGraph(optimize=True, name="g", keep=True)
other = ao.autograd_graph(optimize=True, passes=["cse"], verify=True, anomaly=False, sources=False, allowance=0)
with graph as entered:
    loss = f(x)
    show(entered.backward(loss, retain_graph=True))
    (gradient,) = entered.grad(loss, x, create_graph=True)
    show(gradient.sum())
    count = len(entered) + int(entered.is_acyclic())
    for node in entered:
        show(str(node.op).upper())
        show(node.index + 1)
        show(node.shape)
        show(node.attributes)
        show(node.source)
    first = entered[0]
    show(str(first.op).upper())
    several = entered[0:2]
    show(several[0].op)
    dag = entered.dag
    show(dag.nodes()[0].op)
    show(dag.num_nodes() + entered.optimized(loss).num_edges())
    show([n.op for n in entered.topological_order()])
    report = entered.report()
    show(report.nodes)
    show(report.merged + report.pruned + report.reused)
    show([p.name for p in report.passes])
    show([p.seconds for p in report.passes])
    show([source for group in report.groups for source in group.sources])
    show([miss.reason for miss in report.near_misses])
    print(report.to_dict()["merged"] is None, report)
    verdict = entered.verify(loss, x, engines=["sympy"], save="p.json")
    if verdict.status == "proved":
        show(verdict.require().status.upper())
    show([leaf.status for leaf in verdict.leaves])
    show(verdict.to_json().strip())
    show(verdict.to_dict())
    show(str(verdict.reason))
    show(verdict.conditions)
    show(verdict.counterexample)
    pair = entered.explain(x, loss)
    show([d.text for d in pair.differences])
    show(pair.to_dict())
    kept = entered.snapshot(loss, verify=True)
    show(kept[0].op.upper())
    show([item.operands for item in kept[0:2]])
    show([item.type for item in kept])
    show(kept.report().merged + 1)
    show(kept.verify().status)
    show(kept.draw("g.svg").name)
    show(kept.draw().strip())
    show(kept.to_html().strip())
    show(kept.to_html("g.html").name)
    show(kept.to_dot().strip())
    show(kept.to_mermaid(limit=3).strip())
    show(kept.to_dict())
    module = entered.to_fx(loss, gradients=True)
    show(module.graph.nodes)
    optimized_fx = ao.optimize_fx(module)
    show(optimized_fx.report.merged)
    show(optimized_fx.graph_module)
    expression = entered.gradient_expression(x, names={"x": x})
    show(expression.operations + 1)
    show(expression.latex().strip())
    show(expression.elements)
    show(str(expression))
    with entered.profile("trace.json"):
        show(f(x))
    entered.follow(torch.nn.Linear(2, 2))
    show(entered.draw("g.svg").name)
    show(entered.draw().strip())
    show(entered.to_html("g.html").name)
    show(entered.to_html().strip())
    show(entered.to_dot().strip())
    show(entered.to_mermaid().strip())
    show(entered.to_dict())
    show(ao.draw_comparison(entered).strip())
    show(ao.draw_comparison(entered, "g.svg").name)
    show([v.status for v in entered.verdicts])
    entered.clear()

show(ao.grad(f)(x).sum())
show(ao.grad(g, argnums=(0, 1))(x, x)[0].sum())
show(ao.value_and_grad(f)(x)[0].sum())
show(ao.jacobian(f, x).sum())
show(ao.jacobian(g, (x, x))[0])
show(ao.hessian(f, x).sum())
show(ao.hessian(g, (x, x))[0][1])
show(ao.vjp(f, x)[1])
show(ao.jvp(f, x, x)[1])
show(ao.hvp(f, x, x)[1])
show(ao.vhp(f, x, x)[1])
exact = ao.tensor([1.0, 2.0], dtype=torch.float64)
show(ao.gradcheck(f, (exact,)))
show(ao.gradgradcheck(f, (exact,)))
show(ao.checkpoint(f, x).sum())
plain = torch.ones(2, requires_grad=True)
show(ao.optimize(f)(plain))
region = ao.optimize(torch.nn.Linear(2, 2), verify=True)
show(region.weight.sum())


@ao.optimize
def h(a: torch.Tensor) -> torch.Tensor:
    return a.exp()


@ao.optimize(verify=True)
def h2(a: torch.Tensor) -> torch.Tensor:
    return a.exp()


@ao.compile
def step(a: torch.Tensor) -> torch.Tensor:
    return a.exp()


@ao.compile(exact=True)
def step2(a: torch.Tensor) -> torch.Tensor:
    return a.exp()


show(h(plain).sum())
show(h2(plain).sum())
show(step(plain).sum())
show(step2(plain).sum())
show([kind.reason for kind in step.report().kinds])
show(step.report().to_dict())


def slope_rule(g: torch.Tensor, *, slope: float) -> torch.Tensor:
    return g * slope


@ao.register_op("x, *, slope=1.0", pure=True, elementwise=True, x=slope_rule)
def ramp(x: torch.Tensor, *, slope: float = 1.0) -> torch.Tensor:
    return x * slope


show(ramp(x, slope=2.0).sum())


class Double(ao.CustomFunction):
    @staticmethod
    def forward(ctx: ao.CustomFunction, a: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(a)
        return a * 2

    @staticmethod
    def backward(ctx: ao.CustomFunction, g: torch.Tensor) -> torch.Tensor:
        (a,) = ctx.saved_tensors
        return g * 2 + a * 0


doubled = Double.apply(x)


def nothing(table: passes.NodeTable, state: passes.PassState) -> passes.PassResult:
    leader = state.leader.copy()
    show([table.operands_of(k) for k in range(len(table))])
    return passes.PassResult(leader=leader)


show(ao.register_pass("nothing", nothing, exact=True))
table = passes.NodeTable.from_operands([0, 7], [(), (0,)])
done = passes.Pipeline(["cse", "prune"]).run(table, [1])
show(len(done.leader))
show(done.certificate)

with ao.explain() as e:
    for _ in range(3):
        show(f(plain))
show([finding.advice for finding in e.report.findings])
show(e.report.findings[0].lines[0].seconds + e.report.repeated_seconds + e.report.watched_share)
show(e.report.findings[0].count)
show(e.report.findings[0].action)
show([miss.reason for miss in e.report.near_misses])
show(e.report.to_dict())
show(str(e))

show(verify.replay("p.json").status)
show(verify.assert_optimization_proved(f, x))
budget = verify.Budget(seconds=1.0)
show(verify.ENGINES)
try:
    show(graph.verify(budget=budget))
except (ao.VerificationError, ao.GraphError, ao.GraphMismatchError, ao.OutsideGraphError, ao.FreedGraphError,
        ao.InplaceError, ao.UnsupportedError, ao.ArgumentError, ao.ArgumentTypeError, ao.GradcheckError,
        ao.AutogradOptError) as error:
    print(error)
show(ao.__version__.strip())
