#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <pthread.h>
#include <sys/resource.h>
static double cpu(void){struct timespec t;clock_gettime(CLOCK_THREAD_CPUTIME_ID,&t);return t.tv_sec*1e9+t.tv_nsec;}
static long N; static const char*mode;
static double res[64]; static volatile unsigned sink;
__attribute__((noinline)) static void pair(long n){ for(long i=0;i<n;i++){ char*p=malloc(24+(i*40&0xff)); *(volatile char*)p=1; free(p);} }
__attribute__((noinline)) static void batch(long n){ void*b[64]; for(long i=0;i<n;i+=64){ for(int j=0;j<64;j++){b[j]=malloc(24+((i+j)*40&0xff)); *(volatile char*)b[j]=1;} for(int j=0;j<64;j++) free(b[j]); } }
__attribute__((noinline)) static void larson(long n){ enum{K=4096}; void**b=calloc(K,8); unsigned s=12345; for(long i=0;i<n;i++){ s=s*1664525+1013904223; unsigned k=s>>20; free(b[k]); b[k]=malloc(24+(s>>8&0xe8)); *(volatile char*)b[k]=1;} for(int k=0;k<K;k++)free(b[k]); free(b);}
struct node{struct node*l,*r;};
__attribute__((noinline)) static struct node*tree(int d){ struct node*n=malloc(sizeof*n); if(d){n->l=tree(d-1); n->r=tree(d-1);} else n->l=n->r=0; return n;}
static void drop(struct node*n){ if(n->l){drop(n->l);drop(n->r);} free(n);}
__attribute__((noinline)) static void trees(long n){ for(long i=0;i<n;i+=4095) drop(tree(11)); }
__attribute__((noinline)) static void grow(long n){ void**b=malloc(8*n); for(long i=0;i<n;i++){b[i]=malloc(56); *(volatile char*)b[i]=1;} for(long i=0;i<n;i++)free(b[i]); free(b);}
/* About 20 million allocations a second: each block is filled and summed up. */
__attribute__((noinline)) static void busy(long n){ unsigned x=0; for(long i=0;i<n;i++){ unsigned long s=160+(i*24&0xff); unsigned*p=malloc(s); for(int j=0;j<40;j++) p[j]=x+j; for(int j=0;j<40;j++) x=x*31+p[j]; __asm__ volatile("":"+r"(x)::"memory"); free(p);} sink=x; }
static void*run(void*a){ long id=(long)a; double t=cpu();
 if(!strcmp(mode,"pair"))pair(N); else if(!strcmp(mode,"batch"))batch(N); else if(!strcmp(mode,"larson"))larson(N); else if(!strcmp(mode,"trees"))trees(N); else if(!strcmp(mode,"grow"))grow(N); else if(!strcmp(mode,"busy")) busy(N);
 res[id]=(cpu()-t)/N; return 0;}
int main(int c,char**v){ mode=v[1]; int T=atoi(v[2]); N=atol(v[3]); pthread_t t[64]; for(long i=0;i<T;i++)pthread_create(&t[i],0,run,(void*)i); double m=0; for(int i=0;i<T;i++){pthread_join(t[i],0); m+=res[i]/T;} printf("%.2f\n",m); return 0;}
